"""Measure the host's time and operators in each part of a step that computes almost nothing.

The model is `babylm-10m` at width 64, with its layers and optimizer, on four rows of 64 tokens, so
what remains is the time to launch. On a GPU a part lasts until its calls return; the wait for the
GPU after each is not counted. In a run, `load` is done beside the step before, and weights are
averaged (`average`) only if `train.ema_decay` is set. Operators are counted in bf16, in which GPUs
compute; times are those of `train.precision auto`.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import torch

from benchmarks.common import run_maskwright, write_result
from benchmarks.gpu_speed import find_peak
from maskwright.pretraining.build import build_trainer
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import resolve
from maskwright.train.device import choose_device, product_dtype
from maskwright.train.trainer import Trainer
from tests.operators import PARTS, OperatorCounter, do_step

WARMUP, ROWS, ROW = 5, 4, 64
_MODEL = {"hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 192}


class HostClock:
    """The seconds of the parts of a step; `enter` begins a part."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, defaultdict[str, float](float)
        self._part, self._began = "", 0.0

    def enter(self, part: str) -> None:
        self.seconds[self._part] += time.perf_counter() - self._began
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._part, self._began = part, time.perf_counter()


def build(data: PreparedData, scratch: Path, **train: object) -> Trainer:
    """Return a trainer of the model at step 0; `train` has the device, the precision, compiling."""
    train |= {"max_steps": 10**6, "max_epochs": None, "batch_tokens": ROWS * ROW}
    train |= {"batch_tokens_schedule": [], "seq_length_schedule": [], "ema_decay": 0.999}
    values = {"data": {"max_seq_length": ROW}, "model": _MODEL, "train": train}
    return build_trainer(resolve("babylm-10m", None, values), data, scratch)[0]


def measure(trainer: Trainer, steps: int) -> dict[str, float]:
    """Return the median milliseconds of each part, after the first steps."""
    clocks = [HostClock(trainer.device) for _ in range(WARMUP + steps)]
    for clock in clocks:
        do_step(trainer, clock.enter)
    medians = {p: statistics.median(c.seconds[p] for c in clocks[WARMUP:]) for p in PARTS}
    return {part: round(1e3 * seconds, 3) for part, seconds in medians.items()}


def count(trainer: Trainer) -> dict[str, int]:
    """Return the operators of each part of the second step; the first allocates more."""
    do_step(trainer, lambda part: None)
    with OperatorCounter() as counter:
        do_step(trainer, counter.enter)
    return {part: counter.counts[part] for part in PARTS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="cpu, cuda, … [a GPU if there is one]")
    parser.add_argument("--steps", type=int, default=50)


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # one thread launches; others would only wait on a busy machine
    with tempfile.TemporaryDirectory() as scratch:
        folder, flags = Path(scratch, "data"), ("--tokenizer.vocab_size", 1024)
        run_maskwright("prepare", "pydocs", "--recipe", "babylm-10m", "--out", folder, *flags)
        make = partial(build, PreparedData(folder), Path(scratch), device=arguments.device)
        # Compiled code has no operators that could be counted.
        operators = count(make(precision="bf16", compile="off"))
        times = {
            name: measure(make(compile=on), arguments.steps)
            for name, on in (("eager", "off"), ("compiled", "on"))
        }
    parts = [
        {"part": part, "operators": operators[part], **{how: ms[part] for how, ms in times.items()}}
        for part in PARTS
    ]
    device = choose_device(arguments.device)
    name, _ = find_peak(device.type)
    dtype = str(product_dtype("auto", device)).removeprefix("torch.")
    conditions = {"device": name, "dtype": dtype, "steps": arguments.steps}
    write_result("host-time", {**conditions, "parts": parts})
