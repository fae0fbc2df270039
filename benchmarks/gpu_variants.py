"""Measure options of the compiler, the attention and the optimizer on a GPU, in one process.

    python -m benchmarks gpu-variants --data data/babylm

Each variant trains `babylm-10m` or `base` for some steps: tokens per second, share of the peak
(MFU, see `gpu-speed`), peak memory, seconds until the first steps are over (compiling, recording),
and the ten kernels that take the most time of a step. An option is switched on in the package, and
a part of `gpu_kernels` moves there, only if it is faster here. A variant that fails, or whose steps
are not recorded, is reported with the reason. --toy runs at toy size on a CPU.
"""

import argparse
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from unittest import mock

import torch

from benchmarks import gpu_kernels
from benchmarks.common import add_data, find_prepared, write_result
from benchmarks.gpu_speed import TICK, Setting, find_peak
from benchmarks.training_speed import TickingReporter, time_fit
from maskwright.logs import Record
from maskwright.pretraining.build import objective_of, resolve_model
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig

WARMUP, STEPS, NUM_KERNELS = 4, 6, 10  # ticks before and while the clock runs
WHOLE = ("maskwright.pretraining.build._MAX_WHOLE_BLOCKS", 99)
_MLP, _ATTENTION = "maskwright.model.layers.GatedMLP", "maskwright.model.attention"
PRODUCTS = (f"{_MLP}.forward", gpu_kernels.gate_in_two_products)
GATE = (f"{_MLP}.forward", gpu_kernels.gate_by_kernel)
ROTATION = (f"{_ATTENTION}.SelfAttention._project", gpu_kernels.project_by_kernel)
FLEX = (
    ("maskwright.model.encoder.Encoder._layer_context", gpu_kernels.add_block_mask),
    (f"{_ATTENTION}.attend", gpu_kernels.attend_flex),
)


@dataclass(frozen=True)
class Variant:
    """What differs from the recipe with its defaults on a GPU.

    Attributes:
        values: of the configuration.
        compiler: options of ``torch._inductor.config``.
        patches: constants and functions of the package.
        context: is open while the variant runs.
    """

    recipe: str = "babylm-10m"
    row_length: int = 512
    step_tokens: int = 65_536
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    compiler: Mapping[str, Any] = field(default_factory=dict[str, Any])
    patches: tuple[tuple[str, Any], ...] = ()
    context: Callable[[], AbstractContextManager[None]] = nullcontext


ORDINARY = {"train": {"capture": "off"}}
# The most telling first: out of time, the rest is left out.
VARIANTS: dict[str, Variant] = {
    "captured": Variant(),
    "captured, gate by kernel": Variant(patches=(GATE,)),
    "captured, rotation by kernel": Variant(patches=(ROTATION,)),
    "captured, both kernels": Variant(patches=(GATE, ROTATION)),
    "captured, gate in two products": Variant(patches=(PRODUCTS,)),
    "captured, tanh GELU": Variant(values={"model": {"hidden_act": "gelu_pytorch_tanh"}}),
    "captured, SiLU and RMSNorm": Variant(
        values={"model": {"hidden_act": "silu", "norm": "rmsnorm"}}
    ),
    "captured, FlexAttention": Variant(patches=FLEX),
    "captured, flash attention 4": Variant(context=gpu_kernels.flash_attention_4),
    "base, captured": Variant(recipe="base"),
    "base, captured, both kernels": Variant(recipe="base", patches=(GATE, ROTATION)),
    "captured, rows 128, steps of 16,384": Variant(row_length=128, step_tokens=16_384),
    "captured, rows 128, steps of 16,384, both kernels": Variant(
        row_length=128, step_tokens=16_384, patches=(GATE, ROTATION)
    ),
    "ordinary": Variant(values=ORDINARY),
    "ordinary, rows 128, steps of 16,384": Variant(
        row_length=128, step_tokens=16_384, values=ORDINARY
    ),
    "captured, not compiled": Variant(values={"train": {"compile": "off"}}),
    "captured, whole loss compiled": Variant(patches=(WHOLE,)),
    "captured, rows 128": Variant(row_length=128),
    "captured, NorMuon": Variant(values={"optim": {"muon_beta2": 0.95}}),
    "captured, 4 Newton-Schulz steps": Variant(values={"optim": {"newton_schulz_steps": 4}}),
    "captured, 16,384 a micro-batch": Variant(values={"train": {"micro_batch_tokens": 16_384}}),
    "captured, coordinate descent": Variant(compiler={"coordinate_descent_tuning": True}),
    "base, captured, whole loss compiled": Variant(recipe="base", patches=(WHOLE,)),
    "captured, max-autotune": Variant(compiler={"max_autotune": True}),
}
PROFILED = (
    "captured", "captured, both kernels", "captured, gate in two products",
    "captured, FlexAttention", "base, captured", "ordinary",
)  # fmt: skip


class ProfilingReporter(TickingReporter):
    """A reporter that profiles one tick's steps after those that the clock counts."""

    def __init__(self, warmup: int, profiled_tick: int | None) -> None:
        super().__init__(warmup)
        self._profiled_tick = profiled_tick
        self.profiler: Any = None
        self.start_seconds, self.loss = 0.0, math.nan
        self.lines = list[str]()
        self._began = time.perf_counter()

    def report(self, record: Record, progress: float) -> None:
        if record["split"] != "train":
            return
        number = len(self.tokens) + 1
        self.loss = record["loss"]
        if self._profiled_tick is None or number <= self._profiled_tick:
            super().report(record, progress)
        if number == self.warmup:
            self.start_seconds = time.perf_counter() - self._began
        if number == self._profiled_tick:
            activities = [torch.profiler.ProfilerActivity.CUDA]
            self.profiler = torch.profiler.profile(activities=activities)
            self.profiler.__enter__()
        elif self.profiler is not None and self._profiled_tick is not None:
            torch.cuda.synchronize()
            self.profiler.__exit__(None, None, None)
            self._profiled_tick = None

    def say(self, line: str) -> None:
        self.lines.append(line)

    def list_kernels(self) -> list[tuple[str, float, int]]:
        """Return names, milliseconds and launches a step of the kernels that take the most time."""
        if self.profiler is None:
            return []
        events = self.profiler.key_averages()
        longest_first = sorted(events, key=lambda event: -event.device_time_total)[:NUM_KERNELS]
        return [
            (event.key[:90], round(event.device_time_total / 1e3 / TICK, 3), event.count // TICK)
            for event in longest_first
        ]


@contextmanager
def applied(variant: Variant) -> Iterator[None]:
    """Set the options of a variant within this context."""
    with ExitStack() as stack:
        if variant.compiler:
            inductor = import_module("torch._inductor.config")
            stack.enter_context(inductor.patch(dict(variant.compiler)))
        for name, value in variant.patches:
            stack.enter_context(mock.patch(name, value))
        stack.enter_context(variant.context())
        yield


def measure(variant: Variant, data: PreparedData, device: str, profiles: bool) -> dict[str, Any]:
    """Return the figures of one variant."""
    gc.collect()
    ticks, shape = WARMUP + STEPS, (variant.recipe, variant.row_length, variant.step_tokens)
    setting = Setting(*shape, WARMUP * TICK, (STEPS + profiles) * TICK, device)
    config = setting.configure(variant.values)
    reporter = ProfilingReporter(WARMUP, ticks if profiles else None)
    if device == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with applied(variant):
        speed = time_fit(config, data, reporter)
    found: dict[str, Any] = {
        "tokens_per_second": round(speed),
        "milliseconds_a_step": round(1e3 * variant.step_tokens / speed, 2),
        "loss": round(reporter.loss, 4),
        "start_seconds": round(reporter.start_seconds, 1),
        **count_flops(config, data, variant, speed, device),
    }
    if reporter.lines:
        found["said"] = reporter.lines
    if device == "cuda":
        found["peak_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
    if profiles:
        found["kernels"] = [
            (n[:90], round(ms, 3), count) for n, ms, count in reporter.list_kernels()
        ]
    return found


def count_flops(
    config: PretrainConfig, data: PreparedData, variant: Variant, speed: float, device: str
) -> dict[str, float]:
    """Return the share of the device's peak, if that is known."""
    _, peak = find_peak(device)
    share, model = config.masking.predicted_share_at(0.5), resolve_model(config, data.tokenizer)
    flops = objective_of(config).count_flops_per_token(model, variant.row_length, share)
    return {"model_flops_utilisation": round(speed * flops / peak, 4)} if peak else {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--minutes", type=float, default=4.0, help="begin no variant after these")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, help="variants to measure")
    parser.add_argument("--toy", action="store_true", help="run at toy size on a CPU, no result")


def main(arguments: argparse.Namespace) -> None:
    if not arguments.toy and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --toy shows on a CPU that the program works")
    device, began, found = "cpu" if arguments.toy else "cuda", time.perf_counter(), {}
    with find_prepared(arguments.data) as folder:
        data = PreparedData(folder)
        for name, variant in VARIANTS.items():
            if arguments.only and name not in arguments.only:
                continue
            if time.perf_counter() - began > 60 * arguments.minutes:
                found[name] = {"left_out": "out of time"}
                continue
            if arguments.toy:
                variant = replace(variant, step_tokens=2 * variant.row_length)
            try:
                found[name] = measure(variant, data, device, not arguments.toy and name in PROFILED)
            except Exception as error:
                found[name] = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}
            print(name, found[name], flush=True)
    if not arguments.toy:
        write_result("gpu-variants", {"device": find_peak(device)[0], "variants": found})
