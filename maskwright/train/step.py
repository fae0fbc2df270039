"""One optimizer step, whose gradient does not depend on how the batch is split.

The loss of a term is the sum over the predictions of all micro-batches of all ranks, divided by
their number, which is known before the first forward pass. So 1 x 64 and 8 x 8 rows, on one rank
or on four, have the same gradient. `LogWindow` has the means over the steps since the last record.
"""

import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import LoadedStep
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import World
from maskwright.errors import CheckpointError, show_value
from maskwright.objectives.objective import Term, TermSums
from maskwright.optim.build import Optimizers
from maskwright.train.config import Precision
from maskwright.train.device import autocast


def seed_dropout(seed: int, step: int, rank: int = 0) -> None:
    """Make dropout a function of (seed, step, rank): no generator state has to be saved."""
    torch.manual_seed(int(derive_keys(seed, step, rank)[0]) % 2**63)


def compute_gradients(
    parallel: Parallel,
    loaded: LoadedStep,
    terms: Mapping[str, Term],
    num_predictions: Mapping[str, float],
    device: torch.device,
    precision: Precision,
) -> dict[str, TermSums]:
    """Add the gradient of the loss to the parameters.

    Args:
        terms: the terms of the objective.
        num_predictions: number of predictions of each term, of all ranks together.

    Returns:
        This rank's part of the mean loss and of the number of correct predictions of each term.
        Without predictions, they and the gradients are 0.
    """
    totals = {name: max(num_predictions[name], 1) for name in terms}
    zero = torch.zeros((), device=device)
    shares = dict.fromkeys(terms, TermSums(zero, zero.long()))
    last = len(loaded.micro_batches) - 1
    for number, batch in enumerate(loaded.micro_batches):
        batch = batch.to(device)
        with parallel.accumulating() if number < last else nullcontext():
            with autocast(precision, device):
                sums: Mapping[str, TermSums] = parallel.objective(batch)
            weighted = [sums[name].loss * (terms[name].weight / totals[name]) for name in terms]
            (torch.stack(weighted).sum() * parallel.loss_factor).backward()
        shares = {
            name: TermSums(
                share.loss + sums[name].loss.detach() / totals[name],
                share.num_correct + sums[name].num_correct,
            )
            for name, share in shares.items()
        }
    return shares


def count_predictions(loaded: LoadedStep, terms: Mapping[str, Term]) -> dict[str, int]:
    """Return the number of this rank's predictions in a step, by term."""
    return {name: sum(map(term.count, loaded.micro_batches)) for name, term in terms.items()}


def clip_gradients(model: nn.Module, limit: float, parallel: Parallel) -> Tensor:
    """Clip the gradients to the norm `limit` (0: none); return their norm before, []."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit or float("inf"))
    return parallel.sharding.gather(norm)


@dataclass(frozen=True)
class StepFigures:
    """The results of a step, which its device may not have computed yet.

    Attributes:
        values: [2 N + 1], fp32: mean loss and correct predictions of each of N terms, of all ranks
            together, and the norm of the gradient.
        is_good: [], on the device: True if all values are finite.
        copied: the event after which a GPU has copied `values` to memory.
    """

    values: Tensor
    is_good: Tensor
    copied: torch.cuda.Event | None = None

    @classmethod
    def gather(cls, own: Mapping[str, TermSums], norm: Tensor, world: World) -> "StepFigures":
        """Sum each rank's part of each term; `norm` is the same on all ranks already."""
        sums = torch.stack([figure.float() for term in own.values() for figure in term])
        values = torch.cat([world.sum_tensor(sums), norm.float()[None]])
        is_good = values.isfinite().all()
        if not values.is_cuda:
            return cls(values, is_good)
        copy, copied = values.to("cpu", non_blocking=True), torch.cuda.Event()
        copied.record(torch.cuda.current_stream(values.device))
        return cls(copy, is_good, copied)

    def read(self) -> list[float]:
        """Return the values; wait for their step, but not for one that was started later."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.values.tolist()


def update_weights(
    optimizers: Optimizers, learning_rate_scale: float, is_good: Tensor | None = None
) -> None:
    """Apply the gradients; if `is_good` [] is False, nothing changes."""
    optimizers.scale_learning_rates(learning_rate_scale)
    optimizers.step(is_good)


@dataclass(frozen=True)
class TermFigures:
    """One term of one step, of all ranks together: mean loss, correct predictions, predictions."""

    loss: float
    num_correct: float
    num_predictions: float


@dataclass
class _Sums:
    """Sums over good steps, of all ranks together; the first four by term."""

    losses: dict[str, float]
    correct: dict[str, float]
    predictions: dict[str, float]
    term_steps: dict[str, float]
    grad_norm: float = 0.0
    steps: float = 0

    @classmethod
    def zero(cls, terms: Mapping[str, Term]) -> "_Sums":
        losses, correct, predictions, steps = (dict.fromkeys(terms, 0.0) for _ in range(4))
        return cls(losses, correct, predictions, steps)


class LogWindow:
    """Sums over the good steps since the last record, kept in checkpoints, and a clock."""

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self.terms, self._sums = terms, _Sums.zero(terms)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Exclude the time until now (compiling, validation) from the tokens per second."""
        self._timed_tokens, self._clock = 0, time.perf_counter()

    def add(self, figures: Mapping[str, TermFigures], grad_norm: float) -> None:
        """Add a good step."""
        sums = self._sums
        for name, term in figures.items():
            sums.losses[name] += term.loss
            sums.correct[name] += term.num_correct
            sums.predictions[name] += term.num_predictions
            sums.term_steps[name] += term.num_predictions > 0
        sums.grad_norm += grad_norm
        sums.steps += 1

    def add_time(self, num_tokens: int) -> None:
        """Count the tokens of a step, good or not, in the tokens per second."""
        self._timed_tokens += num_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the sums as plain values, for a checkpoint."""
        return asdict(self._sums)

    def restore(self, values: Any) -> None:
        """Continue from the sums that `to_json` returned.

        Raises:
            CheckpointError: the values have another form, or other terms.
        """
        expected = asdict(_Sums.zero(self.terms))
        if not _has_shape(values, expected):
            raise CheckpointError(
                f"the checkpoint's window = {show_value(values)} does not hold the sums of the "
                f"terms {', '.join(self.terms)}"
            )
        self._sums = _Sums(**values)

    def means(self) -> dict[str, float]:
        """Return losses, accuracies and speed; NaN where no good step predicted anything."""
        seconds = time.perf_counter() - self._clock
        sums, means = self._sums, dict[str, float]()
        for name, term in self.terms.items():
            means[term.loss_name] = sums.losses[name] / (sums.term_steps[name] or math.nan)
            means[term.accuracy_name] = sums.correct[name] / (sums.predictions[name] or math.nan)
        return {
            **means,
            "grad_norm": sums.grad_norm / (sums.steps or math.nan),
            "tokens_per_second": self._timed_tokens / seconds if seconds > 0 else 0.0,
        }


def _has_shape(values: Any, expected: Any) -> bool:
    """Return True if `values` has the keys of `expected`, each with a finite number."""
    if isinstance(expected, dict):
        return (
            isinstance(values, dict)
            and values.keys() == expected.keys()
            and all(_has_shape(values[key], expected[key]) for key in expected)
        )
    is_number = isinstance(values, int | float) and not isinstance(values, bool)
    return is_number and abs(values) < math.inf
