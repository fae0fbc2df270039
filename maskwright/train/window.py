"""What is said about the steps since the last record."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from maskwright.objectives.terms import Term


@dataclass(frozen=True)
class TermFigures:
    """One term of one step, of all ranks together: mean loss, right predictions, predictions."""

    loss: float
    num_correct: float
    num_predictions: float


@dataclass
class LogWindow:
    """Sums over the good steps since it began, of all ranks together."""

    terms: Mapping[str, Term]
    _losses: dict[str, float] = field(init=False)
    _correct: dict[str, float] = field(init=False)
    _predictions: dict[str, float] = field(init=False)
    _term_steps: dict[str, int] = field(init=False)
    _grad_norm: float = 0.0
    _steps: int = 0
    _timed_tokens: int = 0
    _clock: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._losses, self._correct, self._predictions = (
            dict.fromkeys(self.terms, 0.0) for _ in range(3)
        )
        self._term_steps = dict.fromkeys(self.terms, 0)

    def restart_clock(self) -> None:
        """Leaves what came before (compiling, validation) out of the tokens per second."""
        self._timed_tokens, self._clock = 0, time.perf_counter()

    def add(self, figures: Mapping[str, TermFigures], grad_norm: float) -> None:
        """Takes a good step."""
        for name, term in figures.items():
            self._losses[name] += term.loss
            self._correct[name] += term.num_correct
            self._predictions[name] += term.num_predictions
            self._term_steps[name] += term.num_predictions > 0
        self._grad_norm += grad_norm
        self._steps += 1

    def add_time(self, num_tokens: int) -> None:
        """Takes the tokens of any step, which took time whether it was good or not."""
        self._timed_tokens += num_tokens

    def means(self) -> dict[str, float]:
        """Losses, accuracies and speed; not a number where no good step predicted anything."""
        seconds = time.perf_counter() - self._clock
        means: dict[str, float] = {}
        for name, term in self.terms.items():
            means[term.loss_name] = self._losses[name] / (self._term_steps[name] or math.nan)
            means[term.accuracy_name] = self._correct[name] / (self._predictions[name] or math.nan)
        return {
            **means,
            "grad_norm": self._grad_norm / (self._steps or math.nan),
            "tokens_per_second": self._timed_tokens / seconds if seconds > 0 else 0.0,
        }
