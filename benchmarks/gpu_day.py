"""Run all checks and benchmarks that need a GPU, in pieces of at most five minutes.

    python -m benchmarks gpu-day --data data/babylm --blimp blimp/data --sentences data/sentences

Each piece is a separate process with its own dated result; a piece that fails or takes too long is
reported, and the next one starts. --data is a prepared folder of ten million words, as for the
recipe `babylm-10m`, and --sentences another one with `--corpus.documents sentences`. With --toy the
pieces run at toy size on a CPU and write no result.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from itertools import starmap
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import torch

from benchmarks.common import BENCHMARKS, MASKWRIGHT, list_tree, write_result
from benchmarks.serving_load import serving
from maskwright.config import to_mapping
from maskwright.files import hash_file, read_json
from maskwright.logs import read_metrics
from maskwright.runs.run_directory import load_recorded_config, read_provenance

SECONDS = 5 * 60
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
_TOY_SIZE = [
    "--model.hidden_size", "32", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "48",
]  # fmt: skip
_TOY = [
    "--train.device", "cpu", "--data.max_seq_length", "128", "--train.batch_tokens", "512",
    "--train.valid_tokens", "1024", "--train.final_valid_tokens", "1024",
    "--train.compile", "off",
]  # fmt: skip
_RUNS = Path(f"runs/gpu-{date.today()}")  # another day begins new runs
_MINUTES = ("3", "0.05")  # the second at toy size
# In longer rows flash attention adds gradients in any order.
_FEW_STEPS = (
    "--train.max_steps", "40", "--data.max_seq_length", "128", "--train.log_every_steps", "5",
    "--train.compile", "off",
)  # fmt: skip
_SHORT_ROWS = (
    "--train.seq_length_schedule", "0:128", "--train.batch_tokens", "16384",
    "--train.max_epochs", "none",
)  # fmt: skip
_BERT_BASE = (
    "--model.hidden_size", "768", "--model.num_attention_heads", "12",
    "--model.intermediate_size", "2048",
)  # fmt: skip
_EMBEDDING_RATES = (0.003, 0.006, 0.012)
_LIMITS = (10, 40)  # GB of the card that a run may use
_NUM_PAIRS = 2000
_TESTED = (
    "tests/model/test_attention.py",
    "tests/benchmarks/test_gpu_kernels.py",
    "tests/train/test_capture.py",
    "tests/pretraining/test_micro_batch.py",
)
_SIZES = {"384x12": 48, "768x12": 21}  # million tokens: about 40 seconds of an H200 each


def call(*command: object) -> None:
    """Run a command, which must succeed."""
    subprocess.run(list(map(str, command)), check=True)


def call_piece(command: list[str]) -> None:
    """Run a command, which must succeed in time; else kill it with all that it started."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            code = process.wait(SECONDS)
        except BaseException:
            for pid in list_tree(process.pid):  # torchrun gives its workers sessions of their own
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            raise
    if code != 0:
        raise subprocess.CalledProcessError(code, command)


class Day:
    """The pieces; each returns what it found."""

    def __init__(
        self, data: Path, blimp: Path, runs: Path, toy: bool, sentences: Path | None = None
    ) -> None:
        self.data, self.blimp, self.runs, self.toy = data, blimp, runs, toy
        self.of_sentences = sentences

    def build(
        self,
        name: str,
        *flags: str,
        recipe: str = "babylm-10m",
        launcher: tuple[str, ...] = (),
        data: Path | None = None,
    ) -> list[str]:
        """Return the command that trains the recipe."""
        program = [*launcher, "-m", "maskwright"] if launcher else [*MASKWRIGHT]
        text = str(data or self.data)
        where = ["pretrain", text, "--recipe", recipe, "--runs-dir", str(self.runs)]
        more = ["--name", name, "--auto-resume", "--train.report", "false", *flags]
        more += ["--train.checkpoint_every_minutes", "2"]  # for a piece that is out of time
        size = [] if {"--init-from", "--model.sizes"} & {*flags} else _TOY_SIZE
        return [*program, *where, *more, *([*size, *_TOY] if self.toy else [])]

    def pretrain(self, name: str, *flags: str, **options: Any) -> dict[str, Any]:
        """Train a recipe; return the last validation, and the hash of the weights."""
        call(*self.build(name, *flags, **options))
        last = read_metrics(self.runs / name / "metrics.jsonl")[-1]
        weights = hash_file(self.runs / name / "model" / "model.safetensors")
        return {**last, "weights": weights, **read_provenance(self.runs / name)["computation"]}

    def tests(self) -> dict[str, Any]:
        # Warnings of a machine that is not known are no failures.
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", "gpu", "-W", "default"]
        tested = [*_TESTED, *(["--collect-only"] if self.toy else [])]
        done = subprocess.run([*command, *tested], stdout=subprocess.PIPE, text=True)
        end = done.stdout.splitlines()[-30:]
        if done.returncode != 0:
            sys.exit("\n".join(end))
        return {"end": end}

    def variants(self) -> dict[str, Any]:
        toy = ("--toy", "--only", "ordinary") if self.toy else ()
        call(*BENCHMARKS, "gpu-variants", "--data", self.data, *toy)
        return {}  # it writes a result of its own

    def speed(self) -> dict[str, Any]:
        toy = ("--toy", "--rounds", 1) if self.toy else ("--lengths", 512)
        call(*BENCHMARKS, "gpu-speed", "--data", self.data, "--models", "babylm-10m", "base", *toy)
        return {}  # it writes a result of its own

    def auto(self) -> dict[str, Any]:
        found = self.pretrain("auto", "--train.max_minutes", _MINUTES[self.toy], recipe="auto")
        return {**found, "config": to_mapping(load_recorded_config(self.runs / "auto"))}

    def sizes(self) -> dict[str, Any]:
        """Train sizes for about the same seconds, side by side, as their budgets are tokens."""
        commands: dict[str, list[str]] = {}
        for name, millions in _SIZES.items():
            size, tokens = ("64x1", 1000) if self.toy else (name, millions * 10**6)
            flags = ("--model.sizes", f"0:{size}", "--train.max_tokens", str(tokens))
            commands[name] = self.build(name, *flags, recipe="auto")
        running = [subprocess.Popen(command) for command in commands.values()]
        if sum(process.wait() for process in running):
            sys.exit("a size failed")
        last = {name: read_metrics(self.runs / name / "metrics.jsonl")[-1] for name in commands}
        return {"sizes": last}

    def score_pairs(self, name: str) -> dict[str, Any]:
        """Return the scores of a run on all minimal pairs."""
        out = self.runs / f"{name}-blimp.json"
        out.unlink(missing_ok=True)
        flags = ("--suite", "blimp", "--blimp", self.blimp, "--out", out)
        call(*MASKWRIGHT, "evaluate", self.runs / name, *flags)
        found = json.loads(out.read_text(encoding="utf-8"))
        for suite in found["suites"]:
            del suite["environment"]  # the result has its own
        return found

    def minimal_pairs(self) -> dict[str, Any]:
        return self.score_pairs("auto")

    def sentences(self) -> dict[str, Any]:
        """Train on single sentences, in short rows and small steps (152 s of an H200); score."""
        if self.of_sentences is None:
            sys.exit("this piece needs --sentences")
        budget = ("--train.max_tokens", "4000" if self.toy else "163000000")
        found = self.pretrain("sentences", *_SHORT_ROWS, *budget, data=self.of_sentences)
        return {**found, **self.score_pairs("sentences")}

    def rates(self) -> dict[str, Any]:
        """Compare AdamW's rates, those of the embeddings: 60 s of an H200 each."""
        budget = ("--train.max_tokens", "4000" if self.toy else "64000000")
        losses = dict[str, float]()
        for rate in map(str, _EMBEDDING_RATES):
            flags = (*_SHORT_ROWS, *budget, "--optim.learning_rate", rate)
            losses[rate] = self.pretrain(f"rate-{rate}", *flags)["loss"]
        return {"losses": losses}

    def stop(self, name: str, *flags: str, **options: Any) -> None:
        """Begin a run and stop it after its first record."""
        metrics = self.runs / name / "metrics.jsonl"
        with subprocess.Popen(self.build(name, *flags, **options)) as process:
            while process.poll() is None and not read_metrics(metrics):
                time.sleep(0.05)
            process.terminate()  # it writes a checkpoint and ends
        if process.returncode == 0:
            sys.exit("the run ended before it was stopped, so resuming it shows nothing")

    def resuming(self) -> dict[str, Any]:
        whole, repeated = (self.pretrain(name, *_FEW_STEPS) for name in ("whole", "repeated"))
        self.stop("halved", *_FEW_STEPS)
        again = self.pretrain("halved", *_FEW_STEPS)
        return {
            "same_bits": whole["weights"] == again["weights"],
            "repeated_same_bits": whole["weights"] == repeated["weights"],
            "losses": [run["loss"] for run in (whole, repeated, again)],
        }

    def sharding(self) -> dict[str, Any]:
        """Train with FSDP2 and HSDP; stop another run, and finish it without torchrun."""
        found = dict[str, Any]()
        for kind in ("fsdp", "hsdp"):
            flags, halved = (*_FEW_STEPS, "--train.parallel", kind), f"{kind}-halved"
            whole = self.pretrain(kind, *flags, "--train.compile", "on", launcher=_TORCHRUN)
            self.stop(halved, *flags, launcher=_TORCHRUN)
            found[kind] = {"whole": whole, "finished by one process": self.pretrain(halved, *flags)}
        return found

    def micro_batches(self) -> dict[str, Any]:
        """Find the micro-batch of BERT-base's size in limited memory, and then run out of it."""
        steps = ("--train.max_steps", "5", "--train.batch_tokens", "262144")
        flags, found = (*_BERT_BASE, *_SHORT_ROWS, *steps), dict[str, Any]()
        for limit in map(str, _LIMITS):
            chosen = ("--train.micro_batch_tokens", "auto", "--train.device_memory", limit)
            found[f"{limit} GB"] = self.pretrain(f"memory-{limit}", *flags, *chosen)
        if not self.toy:  # a CPU has no limit
            chosen = ("--train.micro_batch_tokens", "262144", "--train.device_memory", "10")
            command = self.build("memory-none", *flags, *chosen)
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            found["out of memory"] = {"code": done.returncode, "end": done.stderr[-500:]}
        return found

    def make_base(self) -> Path:
        """Return a run of the size of BERT-base, trained for half a minute if it does not exist."""
        if not (self.runs / "bert-base" / "model").exists():
            minutes = ("--train.max_minutes", "0.01" if self.toy else "0.5")
            call(*self.build("bert-base", *_BERT_BASE, *_SHORT_ROWS, *minutes))
        return self.runs / "bert-base"

    def continuing(self) -> dict[str, Any]:
        """Pretrain a model of the size of BERT-base further."""
        minutes = ("--train.max_minutes", "0.01" if self.toy else "1")
        begun = ("--init-from", str(self.make_base()))
        last = self.pretrain("continued", *begun, *minutes, recipe="continue")
        first = read_metrics(self.runs / "continued" / "metrics.jsonl")[0]
        return {"before": first["loss"], **last}

    def read_sentences(self) -> list[tuple[str, str]]:
        """Return sentences of the minimal pairs, and whether they are good."""
        found = list[tuple[str, str]]()
        for path in sorted(self.blimp.rglob("*.jsonl")):
            lines = path.read_text(encoding="utf-8").splitlines()[:40]
            for pair in map(json.loads, lines):
                found += [(pair["sentence_good"], "good"), (pair["sentence_bad"], "bad")]
        return found[: 2 * _NUM_PAIRS]

    def finetuning(self) -> dict[str, Any]:
        """Fine-tune BERT-base's size to tell good sentences from bad ones, and predict."""
        table, out = self.runs / "sentences.tsv", self.runs / "tuned"
        rows = ["text\tlabel", *("\t".join(row) for row in self.read_sentences())]
        model = self.make_base()
        table.write_text("\n".join(rows) + "\n", encoding="utf-8")
        flags = ("--task", "classification", "--train", table, "--out", out, "--epochs", 1)
        call(*MASKWRIGHT, "finetune", model, *flags)
        call(*MASKWRIGHT, "predict", out, "--table", table, "--json")
        return {"results": read_json(out / "results.json", 10**7)}

    def vectors(self) -> dict[str, Any]:
        """Compare the vectors of BERT-base's size: on the device, on the CPU, and served."""
        model, file = self.make_base(), self.runs / "sentences.txt"
        texts = [text for text, _ in self.read_sentences()][:256]
        file.write_text("\n".join(texts) + "\n", encoding="utf-8")
        found = list[Any]()
        for number, device in enumerate(("cpu" if self.toy else "cuda", "cpu")):
            out = self.runs / f"vectors-{number}.npy"
            out.unlink(missing_ok=True)
            flags = ("--file", file, "--out", out, "--device", device)
            call(*MASKWRIGHT, "embed", model, *flags)
            found.append(np.load(out))
        with serving(str(model)) as (_, port):
            asked = json.dumps({"inputs": texts[:64]}).encode()
            kind = {"Content-Type": "application/json"}
            with urlopen(Request(f"http://127.0.0.1:{port}/embed", asked, kind)) as answer:
                served = np.asarray(json.load(answer), np.float32)
        on_device, on_cpu = found
        return {
            "least_cosine_with_cpu": float((on_device * on_cpu).sum(-1).min()),
            "least_cosine_with_served": float((on_device[: len(served)] * served).sum(-1).min()),
        }


# Each trains the recipe with these flags, as a piece of a minute and a half with start and scores.
# All are scored on the same masks, so their losses compare.
TRIALS: dict[str, tuple[str, ...]] = {
    "trial_recipe": (),
    "trial_masking_0.2": ("--masking.rate", "0.2", "--masking.final_rate", "none"),
    "trial_decay_0.1": ("--optim.muon_weight_decay", "0.1"),
    "trial_decay_1e-5": ("--optim.muon_weight_decay", "1e-5"),
}


def _make_trial(name: str, flags: tuple[str, ...]) -> Callable[[Day], dict[str, Any]]:
    """Return the piece that trains the recipe with `flags` for a minute."""

    def trial(day: Day) -> dict[str, Any]:
        minutes = _MINUTES[1] if day.toy else "1"
        return {"flags": flags, **day.pretrain(name, "--train.max_minutes", minutes, *flags)}

    trial.__name__ = name
    return trial


PIECES: tuple[Callable[[Day], dict[str, Any]], ...] = (
    Day.tests, Day.variants, Day.sentences, Day.rates, Day.micro_batches, Day.resuming,
    Day.sharding, Day.continuing, Day.finetuning, Day.vectors, Day.sizes, Day.auto,
    Day.minimal_pairs, Day.speed, *starmap(_make_trial, TRIALS.items()),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="ten million prepared words")
    parser.add_argument("--blimp", type=Path, required=True, help="folder of minimal pairs")
    parser.add_argument("--sentences", type=Path, help="the same, prepared as single sentences")
    parser.add_argument("--runs", type=Path, default=_RUNS, help=f"folder for the runs [{_RUNS}]")
    parser.add_argument("--toy", action="store_true", help="run at toy size on a CPU, no results")
    parser.add_argument("--piece", choices=[piece.__name__ for piece in PIECES], help="run one")
    parser.add_argument("--child", help=argparse.SUPPRESS)  # the piece of this process


def main(arguments: argparse.Namespace) -> None:
    if not arguments.toy and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --toy shows on a CPU that the program works")
    if arguments.child:
        where = (arguments.data, arguments.blimp, arguments.runs)
        day = Day(*where, arguments.toy, arguments.sentences)
        began = time.perf_counter()
        found = next(piece for piece in PIECES if piece.__name__ == arguments.child)(day)
        found = {**found, "seconds": round(time.perf_counter() - began, 1)}
        print(found)
        if not arguments.toy:
            device = torch.cuda.get_device_name()
            write_result(f"gpu-{arguments.child.replace('_', '-')}", {"device": device, **found})
        return
    failed = list[str]()
    for piece in (p for p in PIECES if arguments.piece in (None, p.__name__)):
        print(f"== {piece.__name__}", flush=True)
        command = [sys.executable, "-m", "benchmarks", *sys.argv[1:], "--child", piece.__name__]
        try:
            call_piece(command)
        except subprocess.SubprocessError as error:
            failed.append(f"{piece.__name__}: {error}")
    sys.exit("\n".join(failed))
