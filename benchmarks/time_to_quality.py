"""Measure the time that our recipe needs for the loss of transformers' Trainer after half an hour.

    python -m benchmarks time-to-quality --runs runs/quality --data DATA bert-0.001 ours-60

A peer trains for --minutes with AdamW at the rate in its name, with warm-up over 6 % of the time
and linear decay. Its clock counts the seconds in which its threads compute, without scoring. Ours
is the recipe ``auto`` with the seconds in its name as its budget; the wall-clock time of the whole
command counts: start, compiling, validations and report. All are scored on the same pinned masks. A
second call runs only what has no result. The result is the shortest of our runs that is at least
as good as the best rate of a peer.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.common import recall, run_maskwright, write_result
from benchmarks.trainer_peer import (
    Architecture,
    RowsOfIds,
    build_model,
    build_trainer,
    cut_blocks,
    wrap_tokenizer,
)
from maskwright.logs import read_metrics
from maskwright.model_folder.folder import load_model, with_ids_of
from maskwright.pretraining.build import objective_of
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.validation import Validation
from maskwright.runs.config import resolve

ROW, ROWS_A_STEP = 128, 16
RATES: dict[Architecture, tuple[float, ...]] = {
    "bert": (2.5e-4, 5e-4, 1e-3),
    "modernbert": (5e-4, 1e-3, 2e-3),
}
SECONDS = (15, 20, 30, 45, 60, 75, 90, 105, 120, 180, 240, 300, 420, 600)
_MAX_STEPS = 4_000  # more than a peer has time for
_WARMUP = 0.06  # share of its time
_NUM_VALIDATIONS = 5
_SCORES = ("loss", "masked_accuracy", "num_predictions", "unigram_loss", "unigram_accuracy")


def list_names() -> list[str]:
    """Return the names of all runs, the peers' first."""
    peers = [f"{name}-{rate:g}" for name, rates in RATES.items() for rate in rates]
    return [*peers, *(f"ours-{seconds}" for seconds in SECONDS)]


@dataclass
class PeerRun:
    """A peer in training, its clock and the scores so far.

    The clock counts the seconds that each of its threads computed: scoring, and what other programs
    take from the machine, are not part of its time.
    """

    architecture: Architecture
    rate: float
    data: PreparedData
    minutes: float
    bf16: bool
    curve: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    _began: float = 0.0
    _paused: float = 0.0

    def train(self) -> dict[str, Any]:
        """Train to the end of its time."""
        torch.manual_seed(0)
        tokenizer = wrap_tokenizer(self.data.tokenizer)
        self.model = build_model(self.architecture, tokenizer)
        rows = RowsOfIds(cut_blocks(self.data, _MAX_STEPS * ROWS_A_STEP))
        with tempfile.TemporaryDirectory() as scratch:
            trainer = build_trainer(
                self.model,
                tokenizer,
                rows,
                scratch,
                self._watch,
                max_steps=_MAX_STEPS,
                per_device_train_batch_size=ROWS_A_STEP,
                learning_rate=self.rate,
                bf16=self.bf16,
            )
            optimizer = trainer.create_optimizer()
            self._began = self._read_clock()
            trainer.lr_scheduler = LambdaLR(optimizer, lambda _: self._schedule())
            trainer.train()
        last = self.curve[-1]
        return {"steps": last["step"], "rate": self.rate, "curve": self.curve, **last}

    @staticmethod
    def _read_clock() -> float:
        return time.process_time() / torch.get_num_threads()

    @property
    def seconds(self) -> float:
        return self._read_clock() - self._began - self._paused

    @property
    def progress(self) -> float:
        return self.seconds / (60 * self.minutes)

    def _schedule(self) -> float:
        """Return the share of the rate: a linear rise, then a linear fall to 0."""
        progress = min(self.progress, 1.0)
        return min(progress / _WARMUP, (1 - progress) / (1 - _WARMUP))

    def _watch(self, step: int) -> bool:
        progress = self.progress
        if progress < (len(self.curve) + 1) / _NUM_VALIDATIONS:
            return False
        stopped_at = self.seconds
        scores = score_peer(self.model, self.data)
        tokens = step * ROW * ROWS_A_STEP
        self.curve.append({"step": step, "tokens": tokens, "seconds": stopped_at, **scores})
        print(self.architecture, self.rate, self.curve[-1], flush=True)
        self._paused += self.seconds - stopped_at
        return progress >= 1


def score_peer(model: Any, data: PreparedData) -> dict[str, float]:
    """Return loss and accuracy of a model of transformers on the final pinned masks of `auto`."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        wrap_tokenizer(data.tokenizer).save_pretrained(folder)
        ours, _ = load_model(folder)
    ours.config = with_ids_of(ours.config, data.tokenizer)
    config = resolve("auto", None, {"train": {"valid_seq_length": ROW}})
    scores = Validation(config, data, objective_of(config), ours)(1, final=True)
    return {key: scores[key] for key in _SCORES}


def train_ours(seconds: int, data: Path, runs: Path, precision: str) -> dict[str, Any]:
    """Run `auto` as a user would start it; return its seconds and its last validation."""
    name = f"ours-{seconds}"
    shutil.rmtree(runs / name, ignore_errors=True)  # an interrupted run begins again
    train = {"max_minutes": seconds / 60, "valid_seq_length": ROW, "precision": precision}
    flags = [f"--train.{key}={value}" for key, value in {**train, "num_validations": 2}.items()]
    where = ("--recipe", "auto", "--runs-dir", runs, "--name", name)
    taken = run_maskwright("pretrain", data, *where, *flags)
    records = read_metrics(runs / name / "metrics.jsonl")
    final = next(record for record in reversed(records) if record.get("final"))
    keys = ("step", "tokens", "loss", "masked_accuracy", "num_predictions")
    return {"seconds": taken, **{key: final[key] for key in keys}}


def train(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train one run."""
    kind, _, number = name.partition("-")
    architecture: Architecture | None = next((known for known in RATES if known == kind), None)
    if architecture is None:
        return train_ours(int(number), arguments.data, arguments.runs, arguments.precision)
    data, bf16 = PreparedData(arguments.data), arguments.precision == "bf16"
    return PeerRun(architecture, float(number), data, arguments.minutes, bf16).train()


def answer(runs: dict[str, dict[str, Any]], minutes: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each peer with its best rate, our shortest run that is as good, and the ratio."""
    ours = [figures for name, figures in runs.items() if name.startswith("ours-")]
    for architecture in RATES:
        rates = [f for name, f in runs.items() if name.startswith(f"{architecture}-")]
        if not rates:
            continue
        best = min(rates, key=lambda figures: figures["loss"])
        good = [f["seconds"] for f in ours if f["loss"] <= best["loss"]]
        seconds = min(good, default=None)
        yield (
            architecture,
            {
                "best_rate": best["rate"],
                "loss": best["loss"],
                "masked_accuracy": best["masked_accuracy"],
                "our_seconds": seconds,
                "times_faster": 60 * minutes / seconds if seconds else None,
            },
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choices = [*list_names(), "all"]
    parser.add_argument("names", nargs="+", choices=choices, metavar="NAME", help=str(choices))
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--data", type=Path, required=True, help="prepared English Wikipedia")
    parser.add_argument("--minutes", type=float, default=30, help="minutes of a peer [30]")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="[fp32]")


def main(arguments: argparse.Namespace) -> None:
    arguments.runs.mkdir(parents=True, exist_ok=True)
    chosen = list_names() if "all" in arguments.names else arguments.names
    for name in chosen:
        recall(arguments.runs / f"{name}.json", partial(train, name, arguments))
    files = {n: arguments.runs / f"{n}.json" for n in list_names()}
    runs = {n: json.loads(f.read_text()) for n, f in files.items() if f.exists()}
    conditions = {
        "minutes": arguments.minutes,
        "precision": arguments.precision,
        "cores_each": torch.get_num_threads(),
    }
    answers = dict(answer(runs, arguments.minutes))
    write_result("time-to-quality", {**conditions, "answers": answers, "runs": runs})
