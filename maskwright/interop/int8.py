"""The search for a quantized graph that still gives the answers of the one in fp32."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from maskwright.errors import ExportError
from maskwright.interop.onnx_graph import OnnxModel
from maskwright.interop.quantization import RECIPES, Recipe, quantize

AIM = 0.98  # agreement that ends the search for a recipe
FLOOR = 0.90  # below it the quantized model is another model
_REPETITIONS = 9


class Judge(Protocol):
    """What a quantized graph is judged by: questions, and what an equal answer is.

    Attributes:
        questions: their number with a noun, such as ``2,415 masks of held-out text``.
        metric: the name of what `score` computes.
        agreement: what `agree` computes, as part of a sentence.
    """

    @property
    def questions(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def agreement(self) -> str: ...

    def answer(self, graph: OnnxModel) -> Any:
        """Return the answers of a graph to all questions."""
        ...

    def agree(self, before: Any, after: Any) -> float:
        """Return how far two graphs give the same answers: 1 if all are equal."""
        ...

    def score(self, answers: Any) -> float:
        """Return the metric of answers beside the true ones."""
        ...

    def timed_batch(self) -> Sequence[Tensor]:
        """Return the inputs on which graphs are timed, the longest of all; the first is [B, L]."""
        ...


@dataclass(frozen=True)
class Int8Scores:
    """What quantization changed, on held-out text or a task's examples, and on this machine.

    Attributes:
        recipe: how it was done.
        questions: how many of what were answered.
        metric: what the scores are.
        score_fp32, score_int8: before and after.
        agreement: what `same` is.
        same: 1 if all answers are the same before and after.
        milliseconds_fp32, milliseconds_int8: of one batch, median of interleaved repetitions.
        batch_rows, batch_slots: of that batch.
        bytes_fp32, bytes_int8: size of the graphs.
    """

    recipe: str
    questions: str
    metric: str
    score_fp32: float
    score_int8: float
    agreement: str
    same: float
    milliseconds_fp32: float
    milliseconds_int8: float
    batch_rows: int
    batch_slots: int
    bytes_fp32: int
    bytes_int8: int

    def describe(self) -> list[str]:
        """Return two lines, and a third if int8 is no smaller or no faster."""
        speed_up = self.milliseconds_fp32 / self.milliseconds_int8
        lines = [
            f"{self.questions}: {self.metric} {self.score_fp32:.4f} in fp32, "
            f"{self.score_int8:.4f} in int8; {self.agreement} {self.same:.1%} ({self.recipe})",
            f"{self.batch_rows} rows of {self.batch_slots}: {self.milliseconds_fp32:.1f} ms in "
            f"fp32, {self.milliseconds_int8:.1f} ms in int8 ({speed_up:.2f} x) on this machine; "
            f"{self.bytes_fp32 / 1e6:.1f} MB, then {self.bytes_int8 / 1e6:.1f} MB",
        ]
        failures = ["smaller"] * (self.bytes_int8 >= self.bytes_fp32)
        failures += ["faster on this machine"] * (self.milliseconds_int8 >= self.milliseconds_fp32)
        if failures:
            lines.append(
                f"int8 is no {' and no '.join(failures)} than fp32 for this model. Export it to "
                "onnx instead, or measure it where it is to run."
            )
        return lines


@dataclass(frozen=True)
class _Candidate:
    recipe: Recipe
    answers: Any
    same: float


def search_recipe(source: Path, target: Path, judge: Judge) -> Int8Scores:
    """Quantize `source` by the first recipe that reaches `AIM`, or else by the best of them.

    Raises:
        ExportError: no recipe reaches `FLOOR`.
    """
    fp32 = OnnxModel(source)
    before = judge.answer(fp32)
    tried: list[_Candidate] = []
    for recipe in RECIPES:
        quantize(source, target, recipe)
        after = judge.answer(OnnxModel(target))
        tried.append(_Candidate(recipe, after, judge.agree(before, after)))
        if tried[-1].same >= AIM:
            break
    best = max(tried, key=lambda candidate: candidate.same)
    if not best.same >= FLOOR:
        raise ExportError(
            f"int8 changes too many answers to {judge.questions}: {judge.agreement} "
            f"{best.same:.1%}, and {FLOOR:.0%} is the least that passes. Nothing was written; "
            "export it to onnx."
        )
    if best is not tried[-1]:
        quantize(source, target, best.recipe)
    inputs, int8 = judge.timed_batch(), OnnxModel(target)
    num_rows, num_slots = map(int, inputs[0].shape)
    slow, fast = time_interleaved([lambda: fp32(*inputs), lambda: int8(*inputs)])
    return Int8Scores(
        best.recipe.describe(),
        judge.questions,
        judge.metric,
        judge.score(before),
        judge.score(best.answers),
        judge.agreement,
        best.same,
        1e3 * slow,
        1e3 * fast,
        num_rows,
        num_slots,
        _size_of(source),
        _size_of(target),
    )


def time_interleaved(programs: list[Callable[[], object]]) -> list[float]:
    """Return the median time in seconds of each, measured in turns after one that does not count.

    Whatever slows the machine for a while slows all of them.
    """
    seconds: list[list[float]] = [[] for _ in programs]
    for repetition in range(_REPETITIONS + 1):
        for times, program in zip(seconds, programs, strict=True):
            started = time.perf_counter()
            program()
            if repetition:
                times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


def _size_of(graph: Path) -> int:
    """Bytes of a graph and of the weights beside it."""
    return sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))
