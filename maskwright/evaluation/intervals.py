"""Scores from sums by row, with 95 % confidence intervals.

A model's predictions are stored as a few sums for each row of text, never as logits. Every score is
a function of sums over rows. Predictions within a row are not independent, so the bootstrap
resamples rows and not predictions (a cluster bootstrap, Efron and Tibshirani 1993); two models are
compared on the same resamples. Proportions of independent samples have Wilson's interval.

R rows, S sums per row, B resamples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maskwright.evaluation.seeds import find_draws_p_value
from maskwright.runs.evaluation_file import Score

Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
Formula = Callable[[Sums], Floats]
Values = dict[str, np.ndarray]

NUM_RESAMPLES = 1000
RESAMPLING_SEED = 20_181_011
_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution
_DRAWS_AT_ONCE = 1 << 22


def wilson_interval(num_right: float, num_samples: int) -> tuple[float, float]:
    """Return the interval of a proportion of independent samples (Wilson 1927); ties may count 0.5.

    Unlike the normal approximation, it is within 0 and 1 and is accurate for few samples.
    """
    if num_samples == 0:
        return 0.0, 1.0
    n, share = num_samples, num_right / num_samples
    center = share + _Z**2 / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    scale = 1 + _Z**2 / n
    # At 0 and 1, rounding errors could exclude the proportion from its own interval.
    return min((center - spread) / scale, share), max((center + spread) / scale, share)


def score_share(name: str, num_right: float, num_samples: int, baseline: float) -> Score:
    """Return a proportion of independent samples as a score with Wilson's interval."""
    low, high = wilson_interval(num_right, num_samples)
    return Score(name, num_right / num_samples, low, high, num_samples, baseline)


def resample_sums(
    table: Floats, num_resamples: int = NUM_RESAMPLES, seed: int = RESAMPLING_SEED
) -> Floats:
    """Return bootstrap sums over R rows drawn with replacement: [R, S] -> [B, S].

    The draws depend only on the number of rows, so two paired tables have the same ones.
    """
    generator = np.random.default_rng(seed)
    num_rows = len(table)
    sums = np.zeros((num_resamples, table.shape[1]))
    if num_rows == 0:
        return sums
    at_once = max(1, _DRAWS_AT_ONCE // num_rows)
    for start in range(0, num_resamples, at_once):
        count = min(at_once, num_resamples - start)
        times = np.zeros((count, num_rows))
        for draw in times:
            draw += np.bincount(generator.integers(0, num_rows, num_rows), minlength=num_rows)
        sums[start : start + count] = times @ table
    return sums


def describe_bootstrap(unit: str) -> str:
    """Return how intervals are made by resampling rows, each a `unit`, for the results."""
    return f"bootstrap over {unit}, {NUM_RESAMPLES} resamples, seed {RESAMPLING_SEED}"


def percentile_interval(values: Floats) -> tuple[float, float] | None:
    """Return the middle 95 % of resampled values.

    None if a draw had a denominator of 0, or if all values are equal: then the bootstrap says
    nothing about other rows.
    """
    if not len(values) or not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, [0.025, 0.975])
    return (float(low), float(high)) if low < high else None


def mean_interval(values: Floats) -> tuple[float, float] | None:
    """Return the bootstrap interval of the mean of independent values: [R]."""
    sums = resample_sums(np.asarray(values, np.float64)[:, None])
    return percentile_interval(sums[:, 0] / max(len(values), 1))


@dataclass(frozen=True)
class ScoreFormula:
    """The formula of a score as a function of sums.

    Attributes:
        count: the sum that counts the samples; if it is 0, there is no score.
        baseline: the formula of the baseline's score.
        has_interval: False if resampling biases the value.
    """

    name: str
    formula: Formula
    count: str
    baseline: Formula | None = None
    has_interval: bool = True


def ratio(numerator: str, denominator: str) -> Formula:
    """Return the formula of one sum divided by another."""
    return lambda sums: sums[numerator] / sums[denominator]


@dataclass(frozen=True)
class SumTable:
    """The sums of every row. names: [S]; values: [R, S]; seed: the seed of the bootstrap."""

    names: tuple[str, ...]
    values: Floats
    seed: int = RESAMPLING_SEED

    @classmethod
    def join(cls, parts: Sequence[Values]) -> "SumTable":
        """Return the table of the rows of all parts, which have the same names."""
        names = tuple(parts[0]) if parts else ()
        rows = [np.stack([part[name] for name in names], axis=1) for part in parts]
        return cls(names, np.concatenate(rows) if rows else np.zeros((0, 0)))

    @cached_property
    def totals(self) -> Sums:
        """The sums over all rows, as scalars."""
        return dict(zip(self.names, self.values.sum(axis=0), strict=True))

    @cached_property
    def resampled(self) -> Sums:
        """The sums over resampled rows, each [B]."""
        return dict(zip(self.names, resample_sums(self.values, seed=self.seed).T, strict=True))

    def score(self, formulas: Iterable[ScoreFormula]) -> list[Score]:
        """Return the scores that have at least one sample."""
        return [self._score(formula) for formula in formulas if self.totals[formula.count] > 0]

    def _score(self, score: ScoreFormula) -> Score:
        low, high = _find_interval(score, resample(score.formula, self))
        baseline = _compute(score.baseline, self.totals) if score.baseline else None
        value, count = _compute(score.formula, self.totals), float(self.totals[score.count])
        return Score(score.name, value, low, high, round(count), baseline)


def resample(formula: Formula, table: SumTable) -> Floats:
    """Return a formula's values on resampled rows: [B]."""
    with _ignoring_division():
        return formula(table.resampled)


def compare_tables(
    score: ScoreFormula, ours: SumTable, theirs: SumTable, is_paired: bool
) -> tuple[Score, float | None]:
    """Return the difference `ours` - `theirs` of a score with its interval, and its p-value.

    The p-value is twice the share of draws on the rarer side of 0; None without an interval.

    Args:
        score: the formula of the score.
        ours, theirs: the sums of the rows.
        is_paired: True if the rows are the same, so that the difficulty of a row cancels out.
    """
    value = _compute(score.formula, ours.totals) - _compute(score.formula, theirs.totals)
    if not is_paired:
        theirs = replace(theirs, seed=RESAMPLING_SEED + 1)
    draws = resample(score.formula, ours) - resample(score.formula, theirs)
    low, high = _find_interval(score, draws)
    p_value = None if low is None else find_draws_p_value(draws)
    count = round(float(ours.totals[score.count]))
    return Score(score.name, value, low, high, count, 0.0), p_value


def _compute(formula: Formula, totals: Sums) -> float:
    with _ignoring_division():
        return float(formula(totals))


def _ignoring_division() -> np.errstate:
    """Silence NumPy's warnings: the caller handles a score of inf or NaN."""
    return np.errstate(divide="ignore", invalid="ignore", over="ignore")


def _find_interval(score: ScoreFormula, draws: Floats) -> tuple[float | None, float | None]:
    interval = percentile_interval(draws) if score.has_interval else None
    return interval or (None, None)


def sum_by_row(rows: np.ndarray, num_rows: int, values: Mapping[str, np.ndarray]) -> Values:
    """Return the sums by row of values [M] by name; `rows` [M] has the row of each value."""
    return {name: np.bincount(rows, each, num_rows) for name, each in values.items()}
