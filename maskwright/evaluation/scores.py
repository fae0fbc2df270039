"""What a suite says of a model: one form for every score. See docs/evaluation.md."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Score:
    """One number, how sure it is, and what it is to be compared with.

    Attributes:
        name: such as ``masked_accuracy`` or ``blimp/binding/principle_A_case_2``; no two scores of
            all suites together share one.
        low, high: 95 % confidence interval, None where there is none.
        num_samples: of what it is a mean (predictions, pairs, sentences).
        baseline: what no learning would score: token frequencies, 0.5 for a choice of two.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    num_samples: int
    baseline: float | None = None


@dataclass(frozen=True)
class SuiteResult:
    """What one suite found.

    Attributes:
        suite: ``mlm``, ``fill``, ``pll`` or ``blimp``.
        data: ``name`` and ``fingerprint`` (sha256) of what the model was asked.
        settings: all else that the scores depend on: masks, seed, metric, kind of interval.
    """

    suite: str
    data: dict[str, Any]
    settings: dict[str, Any]
    scores: tuple[Score, ...]
