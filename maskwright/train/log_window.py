"""The sums of a training record, between two lines of metrics.jsonl."""

import math
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy

from maskwright.files import JsonObject
from maskwright.objectives.objective import Term
from maskwright.train.step import Counts


def _zero_sums(terms: Mapping[str, Term]) -> JsonObject:
    by_term = ("losses", "correct", "predictions", "term_steps")
    return {**{name: dict.fromkeys(terms, 0.0) for name in by_term}, "grad_norm": 0.0, "steps": 0}


class LogWindow:
    """Sums over the good steps since the last record, kept in checkpoints, and a clock."""

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self.terms, self._sums = terms, _zero_sums(terms)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Exclude the time until now (compiling, validation) from the tokens per second."""
        self._timed_tokens, self._clock = 0, time.perf_counter()

    def add(self, figures: Sequence[float], num_predictions: Counts, grad_norm: float) -> None:
        """Add a good step; `figures` are the loss and the correct predictions of each term."""
        sums = self._sums
        for name, loss, correct in zip(self.terms, figures[::2], figures[1::2], strict=True):
            sums["losses"][name] += loss
            sums["correct"][name] += correct
            sums["predictions"][name] += num_predictions[name]
            sums["term_steps"][name] += num_predictions[name] > 0
        sums["grad_norm"] += grad_norm
        sums["steps"] += 1

    def add_time(self, num_tokens: int) -> None:
        """Count the tokens of a step, good or not, in the tokens per second."""
        self._timed_tokens += num_tokens

    def to_json(self) -> JsonObject:
        """Return the sums as plain values, for a checkpoint."""
        return deepcopy(self._sums)

    def restore(self, values: JsonObject) -> None:
        """Continue from the sums that `to_json` returned, of the same terms."""
        self._sums = values

    def means(self) -> dict[str, float]:
        """Return losses, accuracies and speed; NaN where no good step predicted anything."""
        seconds = time.perf_counter() - self._clock
        sums, means = self._sums, dict[str, float]()
        for name, term in self.terms.items():
            steps, count = sums["term_steps"][name], sums["predictions"][name]
            means[term.loss_name] = sums["losses"][name] / (steps or math.nan)
            means[term.accuracy_name] = sums["correct"][name] / (count or math.nan)
        return {
            **means,
            "grad_norm": sums["grad_norm"] / (sums["steps"] or math.nan),
            "tokens_per_second": self._timed_tokens / seconds if seconds > 0 else 0.0,
        }
