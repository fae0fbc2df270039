"""Steps that are recorded as CUDA graphs, which the host launches with two calls.

A GPU computes a step of a small encoder in a third of the time that the host needs to launch its
kernels. All shapes of a step are static, and every number that changes from step to step is a
tensor on the device, so a recorded step only needs new inputs: Nguyen et al., "Accelerating PyTorch
with CUDA Graphs", 2021. One graph adds the gradient of a micro-batch, another one applies it; with
several ranks the sum over ranks stands between them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.loader import LoadedStep
from maskwright.optim.build import as_input
from maskwright.train.step import Counts, StepFigures, StepParts, add_gradients, scale_losses

# Ordinary steps of a shape before it is recorded: compilers and libraries set themselves up.
NUM_ORDINARY = 3
# Difference of a recorded step from an ordinary one, as a share of the step, beside four times the
# difference of two ordinary ones: flash attention adds gradients in any order.
_TOLERANCE, _NOISE_FACTOR = 0.01, 4.0

Shape = tuple[int, ...]
Replay = Callable[[], None]
Recorder = Callable[[Callable[[], None]], Replay]
zero_all: Any = vars(torch)["_foreach_zero_"]
_copy_all: Any = vars(torch)["_foreach_copy_"]


def record_graph(work: Callable[[], None]) -> Replay:
    """Record what `work` launches, without computing it; return a function that computes it."""
    graph = torch.cuda.CUDAGraph()
    # The thread that loads the next step pins memory meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


@dataclass
class CapturedSteps:
    """Ordinary steps at first, recorded ones when a shape is known and a comparison succeeds.

    Attributes:
        record: `record_graph`; a test on a CPU passes ``lambda work: work``.
        say: a function that prints a line.
        failure: the reason why steps are not recorded any more; empty: they are.
    """

    parts: StepParts
    say: Callable[[str], None] = print
    record: Recorder = record_graph
    failure: str = ""
    _seen: dict[Shape, int] = field(default_factory=dict[Shape, int])
    _graphs: dict[Shape, tuple[Batch, Replay]] = field(  # the batch that a graph reads
        default_factory=dict[Shape, tuple[Batch, Replay]]
    )
    _apply: Replay | None = None
    _lengths: Shape = ()
    _figures: StepFigures | None = None

    def __post_init__(self) -> None:
        count, device = len(self.parts.terms), self.parts.device
        self._scales = torch.zeros(2, count, device=device)
        self._sums = torch.zeros(count, 2, device=device)

    def run(self, loaded: LoadedStep, num_predictions: Counts) -> StepFigures:
        """Do one step at the rates that were set; begin to copy its figures to memory."""
        batch, request = loaded.micro_batches[0], loaded.request
        sizes = (len(batch.input_ids), len(batch.context.cu_seqlens))
        shape = (request.row_length, request.num_candidates, int(loaded.is_causal), *sizes)
        if shape[:2] != self._lengths:  # graphs keep the memory of their activations
            self._graphs.clear()
            self._lengths = shape[:2]
        if shape in self._graphs:
            return self._replay(shape, loaded, num_predictions)
        self._seen[shape] = self._seen.get(shape, 0) + 1
        if self.failure or self._seen[shape] <= NUM_ORDINARY:
            return self._run_ordinary(loaded, num_predictions)
        return self._begin(shape, loaded, num_predictions)

    def _run_ordinary(self, loaded: LoadedStep, num_predictions: Counts) -> StepFigures:
        figures = self.parts.run_keeping_gradients(loaded, num_predictions).start_copy()
        self._clear_gradients()
        return figures

    def _replay(self, shape: Shape, loaded: LoadedStep, num_predictions: Counts) -> StepFigures:
        assert self._apply is not None
        static, replay = self._graphs[shape]
        scales = scale_losses(self.parts.terms, num_predictions)
        self._scales.copy_(as_input(scales, self._scales), non_blocking=True)
        for batch in loaded.micro_batches:
            static.fill(batch)
            replay()
        if self.parts.world.size > 1:
            self.parts.sum_over_ranks(self._sums)
        self._apply()
        assert self._figures is not None
        return self._figures.start_copy()

    def _begin(self, shape: Shape, loaded: LoadedStep, num_predictions: Counts) -> StepFigures:
        """Do a step the ordinary way, record it, and compare; if that fails, go on without."""
        before = [tensor.clone() for tensor in self._tensors()]
        figures = self._run_ordinary(loaded, num_predictions)
        expected = figures.read()
        if not all(map(math.isfinite, expected)):
            return figures
        after = [tensor.clone() for tensor in self._tensors()]
        sizes = self._differences(before)
        self._repeat(before, lambda: self._run_ordinary(loaded, num_predictions))
        noise = self._differences(after)
        problem = self._agree(lambda: self._record(shape, loaded.micro_batches[0]))
        if not problem:

            def compare() -> None:
                found = self._repeat(before, lambda: self._replay(shape, loaded, num_predictions))
                off = [abs(a - b) for a, b in zip(found.read(), expected, strict=True)]
                check_close("figure", off, [*map(abs, expected)], [0.0] * len(off))
                check_close("weight", self._differences(after), sizes, noise)

            problem = self._agree(compare)
        if problem:
            self.failure, self._apply = problem, None
            self._graphs.clear()
            self._clear_gradients()
            self.say(f"steps are not recorded as CUDA graphs: {problem}")
        _copy_all(self._tensors(), after)
        return figures

    def _agree(self, work: Callable[[], None]) -> str:
        """Return why `work` failed on this rank or another one; empty: it did not."""
        problem = ""
        try:
            work()
        except RuntimeError as error:  # out of memory as well
            problem = str(error).partition("\n")[0]
        (failures,) = self.parts.world.sum(bool(problem))
        return problem or "it failed on another rank" * (failures > 0)

    def _record(self, shape: Shape, batch: Batch) -> None:
        """Record both graphs; the gradients have fixed addresses from now on."""
        for parameter in self.parts.model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        static = batch.to(self.parts.device, copy=True)
        self._graphs[shape] = static, self.record(lambda: self._add_gradients(static))
        if self._apply is None:
            self._apply = self.record(self._apply_gradients)
        self._sums.zero_()
        self._clear_gradients()

    def _add_gradients(self, batch: Batch) -> None:
        parts = self.parts
        self._sums += add_gradients(parts.parallel, batch, self._scales, parts.precision)

    def _apply_gradients(self) -> None:
        self._figures = self.parts.apply_gradients(self._sums)
        self._sums.zero_()
        self._clear_gradients(keep=True)

    def _clear_gradients(self, keep: bool = False) -> None:
        """Set the gradients to 0 where a graph adds to them, else remove them."""
        if keep or self._apply is not None:
            zero_all(self.parts.gradients())
        else:
            self.parts.optimizers.zero_grad()

    def _repeat(self, before: list[Tensor], run: Callable[[], StepFigures]) -> StepFigures:
        """Do the same step again, from the state before it and with the same dropout."""
        _copy_all(self._tensors(), before)
        torch.manual_seed(torch.initial_seed())
        return run()

    def _tensors(self) -> list[Tensor]:
        """Return all that a step changes."""
        parts = self.parts
        averages = parts.average.averages.values() if parts.average else ()
        weights = (p.detach() for p in parts.model.parameters())
        return [*weights, *parts.optimizers.state_tensors().values(), *averages]

    def _differences(self, others: list[Tensor]) -> list[float]:
        norms = [(a - b).norm() for a, b in zip(self._tensors(), others, strict=True)]
        return torch.stack(norms).tolist()


def check_close(
    what: str, differences: Sequence[float], sizes: Sequence[float], noise: Sequence[float]
) -> None:
    """Raise RuntimeError if a recorded step differs from an ordinary one.

    Args:
        differences: of each figure, or their norms of each weight and state.
        sizes: of each figure, or the norms of the changes in a step.
        noise: the norms of the differences of two ordinary steps.
    """
    for difference, size, usual in zip(differences, sizes, noise, strict=True):
        if not difference <= _TOLERANCE * size + _NOISE_FACTOR * usual + 1e-12:
            share = difference / max(size, 1e-12)
            raise RuntimeError(f"a {what} is off by {share:.2g} of that of an ordinary step")
