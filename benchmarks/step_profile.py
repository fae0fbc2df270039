"""Profile a training step in fp32 by operator.

The contenders are those of `training-speed`, uncompiled. The wall-clock time of each operator call
is measured in forward, backward and optimizer; the rest of a step is Python and waiting. torch's
profiler is not used, because it causes page faults for large tensors.
"""

import argparse
import time
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.common import add_data, find_prepared, write_result
from benchmarks.training_speed import CONTENDERS, WARMUP, TickingReporter, configure, time_fit
from maskwright.logs import Record
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.train.device import keep_freed_memory

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
_KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "mv"),
    "fused attention": (_ATTENTION, f"{_ATTENTION}_backward"),
    "activations": ("gelu", "gelu_backward", "silu", "silu_backward"),
    "copies": ("cat", "stack", "clone", "copy_", "_to_copy", "index_select", "index_add"),
    "AdamW": ("_fused_adamw_",),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
REST = "other elementwise operators"


class OperatorClock(TorchDispatchMode):
    """The seconds of each kind of operator, added up while `recording`."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = False
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if self.recording:
            name = func.overloadpacket.__name__
            self.seconds[_KIND_OF.get(name, REST)] += time.perf_counter() - began
        return result


class RecordingReporter(TickingReporter):
    """A reporter that starts the clock of operators when the first steps are over."""

    def __init__(self, clock: OperatorClock) -> None:
        super().__init__(WARMUP)
        self.operators = clock

    def report(self, record: Record, progress: float) -> None:
        super().report(record, progress)
        if len(self.tokens) == self.warmup:
            self.operators.recording = True


def profile(name: str, data: PreparedData, steps: int) -> dict[str, float]:
    """Return the milliseconds a step of each kind, the longest first, and of the rest."""
    clock = OperatorClock()
    reporter = RecordingReporter(clock)
    with clock:
        time_fit(configure(name, steps + WARMUP, "fp32", compiles=False), data, reporter)
    longest_first = sorted(clock.seconds.items(), key=lambda item: -item[1])
    kinds = {kind: 1e3 * seconds / steps for kind, seconds in longest_first}
    kinds["no operator"] = 1e3 * reporter.clock.seconds / steps - sum(kinds.values())
    return {kind: round(milliseconds, 2) for kind, milliseconds in kinds.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--steps", type=int, default=20)


def main(arguments: argparse.Namespace) -> None:
    keep_freed_memory()  # as `maskwright pretrain` does
    with find_prepared(arguments.data) as folder:
        data = PreparedData(folder)
        found = {name: profile(name, data, arguments.steps) for name in CONTENDERS}
    write_result("step-profile", {"threads": torch.get_num_threads(), "milliseconds": found})
