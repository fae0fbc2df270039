import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.evaluation.intervals import (
    RESAMPLING_SEED,
    mean_interval,
    percentile_interval,
    resample_sums,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("right", "count", "expected"),
    [  # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_as_published(right: int, count: int, expected: tuple[float, float]) -> None:
    assert wilson_interval(right, count) == pytest.approx(expected, abs=5e-5)


@given(st.integers(0, 2000).flatmap(lambda n: st.tuples(st.integers(0, 2 * n), st.just(n))))
def test_wilson_holds_the_share_and_stays_within_0_and_1(case: tuple[int, int]) -> None:
    halves, count = case
    low, high = wilson_interval(halves / 2, count)
    share = halves / 2 / count if count else 0.5
    assert 0 <= low <= share <= high <= 1
    mirrored = wilson_interval(count - halves / 2, count)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_resampling_is_drawing_rows_one_by_one() -> None:
    table = np.random.default_rng(1).normal(size=(23, 3))
    generator = np.random.default_rng(RESAMPLING_SEED)
    for sums in resample_sums(table, num_resamples=7):
        drawn = generator.integers(0, 23, 23)
        assert sums == pytest.approx(sum(table[row] for row in drawn))


def test_large_tables_are_resampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(1).normal(size=(50, 2))
    whole = resample_sums(table, 20)
    monkeypatch.setattr("maskwright.evaluation.intervals._DRAWS_AT_ONCE", 120)
    assert np.allclose(resample_sums(table, 20), whole)


def test_two_tables_of_as_many_rows_are_resampled_alike() -> None:
    left, right = np.random.default_rng(2).normal(size=(2, 40, 2))
    both = resample_sums(np.hstack([left, right]))
    assert np.allclose(both, np.hstack([resample_sums(left), resample_sums(right)]))


def test_the_interval_of_a_mean_is_about_two_standard_errors() -> None:
    values = np.random.default_rng(3).normal(5, 2, 400)
    interval = mean_interval(values)
    assert interval is not None
    error = values.std() / 20
    expected = (values.mean() - 1.96 * error, values.mean() + 1.96 * error)
    assert interval == pytest.approx(expected, abs=0.2 * error)


def test_no_interval_where_a_draw_has_nothing_to_divide_by() -> None:
    assert percentile_interval(np.array([1.0, np.nan, 2.0])) is None
    assert percentile_interval(np.zeros(0)) is None
    assert mean_interval(np.zeros(0)) is None
    assert mean_interval(np.ones(5)) is None  # all agree
