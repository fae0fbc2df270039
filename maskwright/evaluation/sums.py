"""Sums by row, and the figures made of them, with bootstrap intervals.

A model's answers are kept as a few sums for each row of text, never as logits. Every figure is a
function of sums over rows, so it is worked out once from the sums over all rows, and for its
interval from those over rows drawn anew. R rows, S names, B draws.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from maskwright.evaluation.intervals import (
    RESAMPLING_SEED,
    Floats,
    percentile_interval,
    resample_sums,
)
from maskwright.evaluation.scores import Score

Sums = Mapping[str, Floats]
Formula = Callable[[Sums], Floats]


@dataclass(frozen=True)
class Figure:
    """How a score is made of sums.

    Attributes:
        count: the name of the sum that counts its samples; without any there is no score.
        baseline: the same for what no learning would score.
        has_interval: whether resampling tells how sure it is; not of what noise shifts.
    """

    name: str
    formula: Formula
    count: str
    baseline: Formula | None = None
    has_interval: bool = True


@dataclass(frozen=True)
class SumTable:
    """The sums of every row. names: [S]; values: [R, S]; seed: of the rows drawn anew."""

    names: tuple[str, ...]
    values: Floats
    seed: int = RESAMPLING_SEED

    @cached_property
    def totals(self) -> Sums:
        """The sums over all rows, each []."""
        return dict(zip(self.names, self.values.sum(axis=0), strict=True))

    @cached_property
    def resampled(self) -> Sums:
        """The sums over rows drawn anew, each [B]."""
        return dict(zip(self.names, resample_sums(self.values, seed=self.seed).T, strict=True))

    def score(self, figures: Iterable[Figure]) -> list[Score]:
        """The scores for which there is at least one sample."""
        return [self._score(figure) for figure in figures if self.totals[figure.count] > 0]

    def _score(self, figure: Figure) -> Score:
        low, high = _find_interval(figure, resample(figure.formula, self))
        baseline = _compute(figure.baseline, self.totals) if figure.baseline else None
        value, count = _compute(figure.formula, self.totals), float(self.totals[figure.count])
        return Score(figure.name, value, low, high, round(count), baseline)


def resample(formula: Formula, table: SumTable) -> Floats:
    """The figure on rows drawn anew: [B]. Tables of as many rows are drawn alike."""
    with _quiet():
        return formula(table.resampled)


def _compute(formula: Formula, totals: Sums) -> float:
    with _quiet():
        return float(formula(totals))


def _quiet() -> np.errstate:
    """What is infinite, or nothing by nothing, is seen by what comes of it."""
    return np.errstate(divide="ignore", invalid="ignore", over="ignore")


def _find_interval(figure: Figure, draws: Floats) -> tuple[float | None, float | None]:
    interval = percentile_interval(draws) if figure.has_interval else None
    return interval or (None, None)


def compare_tables(figure: Figure, ours: SumTable, theirs: SumTable, is_paired: bool) -> Score:
    """How much more `ours` scores than `theirs`: the difference, with its interval.

    Args:
        is_paired: whether the rows are the same, so that what makes a row hard cancels out.
    """
    value = _compute(figure.formula, ours.totals) - _compute(figure.formula, theirs.totals)
    if not is_paired:
        theirs = replace(theirs, seed=RESAMPLING_SEED + 1)
    draws = resample(figure.formula, ours) - resample(figure.formula, theirs)
    low, high = _find_interval(figure, draws)
    return Score(figure.name, value, low, high, round(float(ours.totals[figure.count])), 0.0)


def ratio(numerator: str, denominator: str) -> Formula:
    """One sum by another."""
    return lambda sums: sums[numerator] / sums[denominator]


class SumTableBuilder:
    """Puts a table together batch by batch.

    Args:
        names: of the sums, in the order of the columns.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._parts: list[Floats] = []

    def add(self, rows: np.ndarray, num_rows: int, samples: Mapping[str, np.ndarray]) -> None:
        """Adds rows.

        Args:
            rows: [M] the row of each sample, from 0 in every call.
            num_rows: how many rows there are; some may have no sample.
            samples: [M] for each name, what a sample adds.
        """
        sums = np.zeros((num_rows, len(self.names)))
        for column, name in enumerate(self.names):
            sums[:, column] = np.bincount(rows, samples[name], num_rows)
        self._parts.append(sums)

    def build(self) -> SumTable:
        """The table of all rows so far."""
        empty = np.zeros((0, len(self.names)))
        return SumTable(self.names, np.concatenate([empty, *self._parts]))
