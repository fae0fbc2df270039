"""Tokens a second in training, beside transformers' Trainer and beside bare matrix products.

    MASKWRIGHT_DATA=… python -m benchmarks.training_speed [--data DATA] [--sentences DATA]

Everything a step needs is in it: loading, masking, forward, backward, optimizer, logging. All are
6 layers of width 256 with 8,192 words, 2,048 slots a step. On packed text the rows are full; on
sentences theirs are padded, to the longest of a batch as `run_mlm.py --line_by_line` does or to the
whole row as its `--pad_to_max_length` does, and ours hold several. Tokens are counted, not padding.
The peer is not compiled, which is its default. Contenders take turns, each a process of its own, as
its user would start it; ratios are medians over the rounds. ``products of``: a step that were its
matrix products and nothing else, each measured by itself at its shape.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.common import find_prepared, write_result
from benchmarks.products import list_orthogonalisation, list_step
from benchmarks.races import divide, race
from benchmarks.trainer_peer import (
    Architecture,
    Clock,
    RowsOfIds,
    build_model,
    cut_blocks,
    list_documents,
    wrap_tokenizer,
)
from benchmarks.trainer_peer import build_trainer as build_peer
from maskwright.logs import Record
from maskwright.pretraining.build import build_trainer
from maskwright.pretraining.prepared_data import PreparedData, resolve_model
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.train.device import keep_freed_memory, product_dtype

ROW, SLOTS = 128, 2048
WARMUP = 3
_SHAPE = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4}
_ADAMW = {"name": "adamw", "learning_rate": 1e-3}
_MASKS = {"rate": 0.15, "final_rate": 0.15}
# What is compared: our model of the same architecture with the same optimizer and masks, and ours.
CONTENDERS: dict[str, dict[str, Any]] = {
    "bert": {
        "model": {"preset": "bert", "intermediate_size": 1024, **_SHAPE},
        "optim": _ADAMW,
        "masking": _MASKS,
    },
    "modernbert": {
        "model": {"preset": "modernbert", "intermediate_size": 384, **_SHAPE},
        "optim": _ADAMW,
        "masking": _MASKS,
    },
    "tiny": {},
}
PEERS: tuple[Architecture, ...] = ("bert", "modernbert")
THEIRS, OURS, COMPILED, LIMIT = "transformers", "ours", "ours, compiled,", "products of"
PADDED = "transformers, padded to whole rows,"
KINDS = {
    "packed": (THEIRS, OURS, COMPILED, LIMIT),
    "sentences": (THEIRS, PADDED, OURS, COMPILED),
}


class TickingReporter:
    """Tells a clock of each record of training; the first ones do not count."""

    def __init__(self, warmup: int) -> None:
        self.warmup, self.clock = warmup, Clock(warmup)
        self.tokens: list[int] = []

    def report(self, record: Record, progress: float) -> None:
        if record["split"] == "train":
            self.clock.tick()
            self.tokens.append(record["tokens"])

    def advance(self, counts: Record, progress: float) -> None:
        pass

    @property
    def tokens_per_second(self) -> float:
        return (self.tokens[-1] - self.tokens[self.warmup - 1]) / self.clock.seconds


def configure(name: str, steps: int, precision: str, compiles: bool) -> PretrainConfig:
    """The recipe ``tiny`` with what makes it this contender."""
    train = {
        "max_steps": steps,
        "max_minutes": None,
        "batch_tokens": SLOTS,
        "seq_length_schedule": [],
        "precision": precision,
        "compile": "on" if compiles else "off",
        "log_every_steps": 1,
        "num_validations": 1,
    }
    return resolve("tiny", None, {**CONTENDERS[name], "train": train})


def time_fit(
    config: PretrainConfig, data: PreparedData, scratch: Path, reporter: TickingReporter
) -> float:
    """Tokens a second of a run from its first step, without validations and checkpoints."""
    trainer, _ = build_trainer(config, data, scratch)
    trainer.reporter, trainer.checkpoints = reporter, None
    trainer.validate = lambda number, final, is_asked_to_stop: {}
    trainer.fit()
    trainer.prefetcher.close()
    return reporter.tokens_per_second


def time_ours(config: PretrainConfig, data: PreparedData, scratch: Path) -> float:
    """Tokens a second; every step is a record."""
    return time_fit(config, data, scratch, TickingReporter(WARMUP))


def time_peer(
    name: Architecture,
    data: PreparedData,
    rows: list[list[int]],
    rows_a_step: int,
    steps: int,
    *,
    bf16: bool,
    pad_to: int | None,
) -> float:
    """Tokens a second of `Trainer`, whose order of the rows is drawn from its own seed."""
    torch.manual_seed(0)
    clock = Clock(WARMUP)
    rows = rows[: rows_a_step * steps]
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = wrap_tokenizer(data.tokenizer)
        trainer = build_peer(
            build_model(name, tokenizer),
            tokenizer,
            RowsOfIds(rows),
            scratch,
            lambda step: clock.tick(),
            pad_to=pad_to,
            max_steps=steps,
            per_device_train_batch_size=rows_a_step,
            learning_rate=1e-3,
            bf16=bf16,
        )
        trainer.train()
    return sum(map(len, rows)) / len(rows) * rows_a_step * clock.num_steps / clock.seconds


def run_alone(name: str, data: PreparedData, arguments: argparse.Namespace) -> float:
    """Tokens a second of a contender, in this process."""
    kind, _, architecture = name.rpartition(" ")
    steps = WARMUP + max(1, arguments.steps // (4 if kind == PADDED else 1))  # long ones, alike
    config = configure(architecture, steps, arguments.precision, kind == COMPILED)
    if kind in (OURS, COMPILED, LIMIT):
        keep_freed_memory()  # as `maskwright pretrain` does
    if kind == LIMIT:
        return measure_limit(config, data)
    if kind in (OURS, COMPILED):
        with tempfile.TemporaryDirectory() as scratch:
            return time_ours(config, data, Path(scratch))
    if arguments.corpora == ["packed"]:
        rows = cut_blocks(data, SLOTS // ROW * steps)
    else:
        rows = list(islice(list_documents(data, ROW), SLOTS // 8 * steps))
    return time_peer(
        cast(Architecture, architecture),
        data,
        rows,
        round(SLOTS * len(rows) / sum(map(len, rows))),  # as many tokens a step as ours
        steps,
        bf16=arguments.precision == "bf16",
        pad_to=ROW if kind == PADDED else None,
    )


def run_beside(name: str, folder: Path, corpus: str, arguments: argparse.Namespace) -> float:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.training_speed", "--alone", name]
    command += ["--data", str(folder), "--corpora", corpus, "--steps", str(arguments.steps)]
    command += ["--precision", arguments.precision]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def compare(folder: Path, corpus: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All contenders on one corpus, and the ratios."""
    names = [
        f"{kind} {name}"
        for name in CONTENDERS
        for kind in KINDS[corpus]
        if name in PEERS or (kind in (OURS, COMPILED, LIMIT) and corpus == "packed")
    ]
    contenders: dict[str, Callable[[], float]] = {
        name: partial(run_beside, name, folder, corpus, arguments) for name in names
    }
    found = race(contenders, arguments.rounds, "tokens/s")
    ratios = {
        f"{mine} over {his}": divide(found[mine], found[his])
        for mine, his in list_pairs()
        if mine in found and his in found
    }
    return {"tokens_per_second": found, "ratios": ratios}


def list_pairs() -> Iterator[tuple[str, str]]:
    """Ours and what it is divided by: the peer of its shape, its products; `tiny` by both peers."""
    for ours in (OURS, COMPILED):
        for name in CONTENDERS:
            for peer in (name,) if name in PEERS else PEERS:
                yield f"{ours} {name}", f"{THEIRS} {peer}"
            yield f"{ours} {name}", f"{PADDED} {name}"
            yield f"{ours} {name}", f"{LIMIT} {name}"


def measure_limit(config: PretrainConfig, data: PreparedData) -> float:
    """Tokens a second if a step were its matrix products and nothing else."""
    model = resolve_model(config, data.tokenizer)
    masked = round(SLOTS * (config.masking.rate_at(0.0) + config.masking.rate_at(1.0)) / 2)
    products = list_step(model, SLOTS, ROW, masked)
    dtype = product_dtype(config.train.precision, torch.device("cpu"))
    if config.optim.name == "muon":
        products += list_orthogonalisation(model, config.optim.newton_schulz_steps, dtype)
    return SLOTS / sum(product.measure(dtype) for product in products)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="English Wikipedia, prepared already")
    parser.add_argument("--sentences", type=Path, help="its sentences, prepared already")
    parser.add_argument("--corpora", nargs="+", default=["packed", "sentences"])
    parser.add_argument("--steps", type=int, default=20, help="timed ones, of each round [20]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of all")
    parser.add_argument("--alone", metavar="NAME", help="one contender; prints its tokens a second")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.alone:
        print(run_alone(arguments.alone, PreparedData(arguments.data), arguments))
        return
    folders = {"packed": arguments.data, "sentences": arguments.sentences}
    measured: dict[str, Any] = {}
    for corpus in arguments.corpora:
        with find_prepared(folders[corpus], corpus == "sentences") as folder:
            measured[corpus] = compare(folder, corpus, arguments)
    conditions = {"precision": arguments.precision, "steps": arguments.steps}
    conditions["threads"] = torch.get_num_threads()
    write_result(f"training-speed-{arguments.precision}", {**conditions, "corpora": measured})
    for corpus, figures in measured.items():
        for name, ratio in figures["ratios"].items():
            print(f"{corpus:<10} {name:<56} {ratio['median']:.2f}")


if __name__ == "__main__":
    main()
