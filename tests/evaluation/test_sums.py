import numpy as np
import pytest

from maskwright.evaluation.intervals import Floats
from maskwright.evaluation.sums import (
    Figure,
    SumTable,
    SumTableBuilder,
    compare_tables,
    ratio,
    resample,
)

MEAN = Figure("mean", ratio("value", "count"), "count", ratio("guess", "count"))


def make_table(values: Floats) -> SumTable:
    """A row a value, each a sample."""
    columns = [np.ones_like(values), values, 0.5 * np.ones_like(values)]
    return SumTable(("count", "value", "guess"), np.stack(columns, axis=1))


def test_samples_are_added_to_their_rows_and_rows_to_the_table() -> None:
    builder = SumTableBuilder(["count", "value"])
    ones = np.ones(3)
    builder.add(np.array([2, 0, 2]), 4, {"count": ones, "value": np.array([1.0, 10.0, 100.0])})
    builder.add(np.array([0, 0, 0]), 1, {"count": ones, "value": ones, "unused": ones})
    table = builder.build()
    assert table.values.tolist() == [[1, 10], [0, 0], [2, 101], [0, 0], [3, 3]]
    assert table.totals == {"count": 6, "value": 114}
    assert SumTableBuilder(["count"]).build().totals == {"count": 0}


def test_a_score_has_value_interval_baseline_and_samples() -> None:
    values = np.random.default_rng(0).normal(3, 1, 300)
    [score] = make_table(values).score([MEAN])
    assert (score.name, score.num_samples, score.baseline) == ("mean", 300, 0.5)
    assert score.value == pytest.approx(values.mean())
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.value < score.high
    assert score.high - score.low == pytest.approx(4 * values.std() / 300**0.5, rel=0.15)


def test_no_samples_no_score_and_no_spread_no_interval() -> None:
    assert make_table(np.zeros(0)).score([MEAN]) == []
    [score] = make_table(np.zeros(5)).score([MEAN])
    assert (score.value, score.low, score.high) == (0.0, None, None)


def test_a_paired_difference_is_surer_than_that_of_strangers() -> None:
    generator = np.random.default_rng(1)
    hard = generator.normal(0, 10, 200)  # what makes a row hard, for both models
    ours, theirs = make_table(hard + 1), make_table(hard + generator.normal(0, 0.1, 200))
    paired = compare_tables(MEAN, ours, theirs, is_paired=True)
    apart = compare_tables(MEAN, ours, theirs, is_paired=False)
    assert paired.value == apart.value == pytest.approx(1, abs=0.05)
    assert None not in (paired.low, paired.high, apart.low, apart.high)
    assert paired.low is not None
    assert apart.low is not None
    assert paired.low > 0.9
    assert apart.low < 0


def test_a_model_does_not_differ_from_itself() -> None:
    table = make_table(np.random.default_rng(2).normal(size=50))
    same = compare_tables(MEAN, table, table, is_paired=True)
    assert (same.value, same.low, same.high) == (0.0, None, None)


def test_a_paired_difference_is_worked_out_on_each_draw() -> None:
    ours, theirs = (make_table(v) for v in np.random.default_rng(3).normal(size=(2, 30)))
    difference = compare_tables(MEAN, ours, theirs, is_paired=True)
    draws = resample(MEAN.formula, ours) - resample(MEAN.formula, theirs)
    assert (difference.low, difference.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]))
