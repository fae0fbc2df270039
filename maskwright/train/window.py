"""Means over the steps since the last record."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from maskwright.errors import CheckpointError, show_value
from maskwright.objectives.objective import Term


@dataclass(frozen=True)
class TermFigures:
    """One term of one step, of all ranks together: mean loss, right predictions, predictions."""

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


@dataclass
class LogWindow:
    """Sums over the good steps since it began, which a checkpoint keeps; and a clock."""

    terms: Mapping[str, Term]
    _sums: _Sums = field(init=False)
    _timed_tokens: int = 0
    _clock: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._sums = _Sums.zero(self.terms)

    def restart_clock(self) -> None:
        """Leave the time until now (compiling, validation) out of the tokens per second."""
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
        """Add the tokens of any step, which took time whether it was good or not."""
        self._timed_tokens += num_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the sums as plain values, for a checkpoint."""
        return asdict(self._sums)

    def restore(self, values: Any) -> None:
        """Continue from the sums that `to_json` returned.

        Raises:
            CheckpointError: they are anything else, or of other terms.
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
    """Return True if `values` has the keys of `expected` and a finite number for each of its."""
    if isinstance(expected, dict):
        return (
            isinstance(values, dict)
            and values.keys() == expected.keys()
            and all(_has_shape(values[key], expected[key]) for key in expected)
        )
    is_number = isinstance(values, int | float) and not isinstance(values, bool)
    return is_number and abs(values) < math.inf
