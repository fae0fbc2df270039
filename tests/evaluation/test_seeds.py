"""Statistics over seeds are those of scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.evaluation.seeds import (
    Floats,
    adjust_holm,
    compare_groups,
    compare_pairs,
    count_seeds_needed,
    find_detectable,
    find_p_value,
    find_power,
    find_t,
    mean_interval_of_seeds,
)

stats = pytest.importorskip("scipy.stats")
FREEDOM = st.floats(1, 200)


@settings(max_examples=30, deadline=None)
@given(FREEDOM, st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_find_t_is_the_quantile_of_scipy(freedom: float, share: float):
    assert find_t(freedom, share) == pytest.approx(stats.t.ppf((1 + share) / 2, freedom), rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(FREEDOM, st.floats(-60, 60))
def test_find_p_value_is_that_of_scipy(freedom: float, t: float):
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert find_p_value(t, freedom) == pytest.approx(expected, rel=2e-3, abs=1e-12)


def make_groups(is_paired: bool) -> tuple[Floats, Floats]:
    draw = np.random.default_rng(3)
    ours = draw.normal(5.0, 0.2, 4)
    return ours, ours + draw.normal(0.1, 0.01, 4) if is_paired else draw.normal(5.1, 0.4, 6)


@pytest.mark.parametrize("is_paired", [True, False])
def test_compare_groups_is_the_t_test_of_scipy(is_paired: bool):
    ours, theirs = make_groups(is_paired)
    found = compare_groups(ours, theirs, is_paired)
    if is_paired:
        expected = stats.ttest_rel(ours, theirs)
        assert found.deviation == pytest.approx(np.std(ours - theirs, ddof=1))
    else:
        expected = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx(tuple(interval), rel=1e-4)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-3)
    assert found.value == pytest.approx(ours.mean() - theirs.mean())
    assert (found.mean, found.mean_against) == pytest.approx((ours.mean(), theirs.mean()))


@settings(max_examples=40, deadline=None)
@given(st.data(), st.booleans())
def test_the_interval_excludes_0_where_the_p_value_is_small(data: st.DataObject, is_paired: bool):
    values = st.floats(-1, 1).map(lambda value: round(value, 3))
    ours = np.array(data.draw(st.lists(values, min_size=3, max_size=5)))
    size = len(ours) if is_paired else 4
    theirs = np.array(data.draw(st.lists(values, min_size=size, max_size=size)))
    found = compare_groups(ours, theirs, is_paired)
    if abs(found.p_value - 0.05) > 1e-3:
        assert (found.p_value < 0.05) == (not found.low <= 0 <= found.high)


@pytest.mark.parametrize(("theirs", "p_value"), [(3.0, 0.0), (1.0, 1.0)])
def test_groups_without_deviation_have_an_interval_of_a_point(theirs: float, p_value: float):
    found = compare_groups(np.array([1.0, 1.0]), np.array([theirs, theirs]), False)
    assert (found.low, found.high, found.deviation) == (1.0 - theirs, 1.0 - theirs, 0.0)
    assert found.p_value == pytest.approx(p_value)


def test_the_interval_of_one_group_is_that_of_scipy():
    values = np.array([0.3, 0.5, 0.45])
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    assert mean_interval_of_seeds(values) == pytest.approx(tuple(expected), rel=1e-4)
    assert mean_interval_of_seeds(values[:1]) is None


@given(st.lists(st.none() | st.floats(0, 1), max_size=12))
def test_adjust_holm_rejects_what_the_steps_reject(p_values: list[float | None]):
    """Holm's own words: step down, and stop at the first that is not rejected."""
    adjusted = adjust_holm(p_values)
    tested = [p for p in p_values if p is not None]
    for alpha in (0.01, 0.05, 0.3):
        rejected = set[float]()
        for rank, p in enumerate(sorted(tested)):
            if p * (len(tested) - rank) > alpha:
                break
            rejected.add(p)
        assert {
            p for p, a in zip(p_values, adjusted, strict=True) if a is not None and a <= alpha
        } == rejected
    assert [a is None for a in adjusted] == [p is None for p in p_values]


def test_adjust_holm_as_published():
    # The example of R's p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm"), in another order.
    assert adjust_holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize("num_seeds", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("effect", [0.0, 0.5, 2.0])
def test_find_power_is_that_of_the_noncentral_t(effect: float, num_seeds: int, is_paired: bool):
    freedom = (1 if is_paired else 2) * (num_seeds - 1)
    t, shift = stats.t.ppf(0.975, freedom), effect * num_seeds**0.5
    expected = stats.nct.sf(t, freedom, shift) + stats.nct.cdf(-t, freedom, shift)
    assert find_power(effect, num_seeds, is_paired) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("is_paired", [True, False])
def test_count_seeds_needed_is_the_first_number_with_the_power(is_paired: bool):
    count = count_seeds_needed(0.1, 0.1, is_paired)
    assert count is not None
    assert find_power(1.0, count - 1, is_paired) < 0.8 <= find_power(1.0, count, is_paired)
    assert (
        find_detectable(0.1, count, is_paired) <= 0.1 < find_detectable(0.1, count - 1, is_paired)
    )


def test_no_number_of_seeds_finds_nothing():
    assert count_seeds_needed(0.0, 0.1, True) is None
    assert count_seeds_needed(1e-6, 0.1, True) is None
    assert count_seeds_needed(0.1, 0.0, True) == 2


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize("is_paired", [True, False])
def test_intervals_cover_the_true_difference_in_95_of_100_experiments(
    num_seeds: int, is_paired: bool
):
    """Seeds shift both arms alike, arms differ in deviation: 1,000 simulated experiments."""
    draw = np.random.default_rng(num_seeds)
    covered = 0
    num_experiments = 1000
    for _ in range(num_experiments):
        luck = draw.normal(0, 0.05, (2, num_seeds))
        luck = luck[[0, 0]] if is_paired else luck
        ours = 4.9 + luck[0] + draw.normal(0, 0.02, num_seeds)
        theirs = 5.0 + luck[1] + draw.normal(0, 0.01, num_seeds)
        found = compare_groups(ours, theirs, is_paired)
        covered += found.low <= -0.1 <= found.high
    # Three standard errors of a share of 0.95; Welch's test is slightly conservative.
    assert 0.93 <= covered / num_experiments <= 0.98


def simulate_pairs(draw: np.random.Generator, num_seeds: int) -> tuple[Floats, Floats]:
    """Two arms on 60 items of 3 paradigms: the true difference is 0.1 in each paradigm."""
    difficulty = draw.normal(0, 0.3, 60)
    reaction = draw.normal(0, 0.3, 60)  # of the first arm to an item
    luck = draw.normal(0, 0.05, (2, num_seeds, 1))
    noise = draw.normal(0, 0.3, (2, num_seeds, 60))
    ours, theirs = difficulty + luck + noise
    return ours + 0.1 + reaction, theirs


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
def test_intervals_over_seeds_and_pairs_cover_the_true_difference(num_seeds: int):
    draw, strata = np.random.default_rng(num_seeds), np.repeat(np.arange(3), 20)
    found = [compare_pairs(*simulate_pairs(draw, num_seeds), strata) for _ in range(600)]
    covered = sum(one.low <= 0.1 <= one.high for one in found) / len(found)
    assert 0.925 <= covered <= 0.985
    # Over seeds alone, the same experiments say too much.
    alone = 0
    for _ in range(300):
        ours, theirs = simulate_pairs(draw, num_seeds)
        one = compare_groups(ours.mean(1), theirs.mean(1), True)
        alone += one.low <= 0.1 <= one.high
    assert alone / 300 < covered


def test_compare_pairs_is_the_paired_t_test_where_items_are_alike():
    """Without a difference between items, only seeds are left."""
    luck = np.array([0.3, 0.1, 0.25, 0.4])
    ours, theirs = np.repeat(luck[:, None], 12, 1), np.zeros((4, 12))
    found = compare_pairs(ours, theirs, np.repeat(np.arange(2), 6))
    expected = stats.ttest_rel(luck, np.zeros(4))
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-4)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-3)


def test_compare_pairs_weighs_paradigms_of_other_sizes_alike():
    ours = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    found = compare_pairs(ours, np.zeros((2, 4)), np.array([0, 0, 0, 1]))
    assert (found.mean, found.mean_against, found.value) == pytest.approx((0.5, 0.0, 0.5))
