"""Run all checks and benchmarks that need a GPU, in pieces of at most nine minutes.

    python -m benchmarks gpu-day --data data/babylm --blimp blimp/data

Each piece is a separate process with its own dated result; a piece that fails or takes too long is
reported, and the next one starts. --data is a prepared folder of ten million words, as for the
recipe `babylm-10m`. With --toy the pieces run at toy size on a CPU and write no result.
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

import torch

from benchmarks.common import BENCHMARKS, MASKWRIGHT, list_tree, write_result
from maskwright.config import to_mapping
from maskwright.files import hash_file
from maskwright.logs import read_metrics
from maskwright.runs.run_directory import load_recorded_config, read_provenance

SECONDS = 9 * 60
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
_TOY = [
    "--train.device", "cpu", "--model.hidden_size", "32", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "48",
    "--data.max_seq_length", "64", "--train.batch_tokens", "512", "--train.valid_tokens", "1024",
    "--train.final_valid_tokens", "1024", "--train.compile", "off",
]  # fmt: skip
_RUNS = Path(f"runs/gpu-{date.today()}")  # another day begins new runs
_MINUTES = ("3", "0.05")  # the second at toy size
# In longer rows flash attention adds gradients in any order.
_FEW_STEPS = (
    "--train.max_steps", "40", "--data.max_seq_length", "128", "--train.log_every_steps", "5",
    "--train.compile", "off",
)  # fmt: skip
_TESTED = (
    "tests/model/test_attention.py",
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

    def __init__(self, data: Path, blimp: Path, runs: Path, toy: bool) -> None:
        self.data, self.blimp, self.runs, self.toy = data, blimp, runs, toy

    def build(
        self,
        name: str,
        *flags: str,
        recipe: str = "babylm-10m",
        launcher: tuple[str, ...] = (),
    ) -> list[str]:
        """Return the command that trains the recipe."""
        program = [*launcher, "-m", "maskwright"] if launcher else [*MASKWRIGHT]
        where = ["pretrain", str(self.data), "--recipe", recipe, "--runs-dir", str(self.runs)]
        more = ["--name", name, "--auto-resume", "--train.report", "false", *flags]
        more += ["--train.checkpoint_every_minutes", "2"]  # for a piece that is out of time
        return [*program, *where, *more, *(_TOY if self.toy else [])]

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

    def minimal_pairs(self) -> dict[str, Any]:
        out, model = self.runs / "blimp.json", self.runs / "auto"
        out.unlink(missing_ok=True)
        flags = ("--suite", "blimp", "--blimp", self.blimp, "--out", out)
        call(*MASKWRIGHT, "evaluate", model, *flags)
        found = json.loads(out.read_text(encoding="utf-8"))
        for suite in found["suites"]:
            del suite["environment"]  # the result has its own
        return found

    def resuming(self) -> dict[str, Any]:
        whole, metrics = self.pretrain("whole", *_FEW_STEPS), self.runs / "halved" / "metrics.jsonl"
        repeated = self.pretrain("repeated", *_FEW_STEPS)
        command = self.build("halved", *_FEW_STEPS)
        with subprocess.Popen(command) as process:
            while process.poll() is None and not read_metrics(metrics):
                time.sleep(0.05)
            process.terminate()  # it writes a checkpoint and ends
        again = self.pretrain("halved", *_FEW_STEPS)
        if process.returncode == 0:
            sys.exit("the run ended before it was stopped, so resuming it shows nothing")
        return {
            "same_bits": whole["weights"] == again["weights"],
            "repeated_same_bits": whole["weights"] == repeated["weights"],
            "losses": [run["loss"] for run in (whole, repeated, again)],
        }

    def sharding(self) -> dict[str, Any]:
        compiled = ("--train.parallel", "fsdp", "--train.compile", "on")
        return self.pretrain("fsdp", *_FEW_STEPS, *compiled, launcher=_TORCHRUN)


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
    Day.tests, Day.variants, Day.sizes, Day.auto, Day.minimal_pairs, Day.resuming, Day.sharding,
    Day.speed, *starmap(_make_trial, TRIALS.items()),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="ten million prepared words")
    parser.add_argument("--blimp", type=Path, required=True, help="folder of minimal pairs")
    parser.add_argument("--runs", type=Path, default=_RUNS, help=f"folder for the runs [{_RUNS}]")
    parser.add_argument("--toy", action="store_true", help="run at toy size on a CPU, no results")
    parser.add_argument("--piece", choices=[piece.__name__ for piece in PIECES], help="run one")
    parser.add_argument("--child", help=argparse.SUPPRESS)  # the piece of this process


def main(arguments: argparse.Namespace) -> None:
    if not arguments.toy and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --toy shows on a CPU that the program works")
    if arguments.child:
        day = Day(arguments.data, arguments.blimp, arguments.runs, arguments.toy)
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
