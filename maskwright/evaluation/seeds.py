"""Differences between groups of runs with several seeds: intervals, p-values, adjustment, power.

A score of a run depends on its seed, so a difference between two settings is judged by its spread
over seeds: Student's t, paired by seed where both groups have the same seeds, else Welch's. One
score is *primary*, chosen before the runs are looked at. All others are *exploratory*: their
p-values are adjusted for their number (Holm, 1979), because one in twenty differs by chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALPHA = 0.05
POWER = 0.8
MAX_SEEDS = 1000
_NUM_ANGLES = 10_001
_NUM_SPREADS = 1000


def find_t(freedom: float, share: float = 1 - ALPHA) -> float:
    """Return the t that a share of Student's distribution is within, for degrees of freedom."""
    # With t = sqrt(freedom) tan(angle), the density of the angle is a power of its cosine.
    angles = np.linspace(0, np.pi / 2, _NUM_ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    below: Floats = np.cumsum(density[1:] + density[:-1])
    [angle] = np.interp(np.array([share * below[-1]]), below, angles[1:]).tolist()
    return freedom**0.5 * math.tan(angle)


def find_p_value(t: float, freedom: float) -> float:
    """Return the probability that Student's t is at least as far from 0 as `t`."""
    angles = np.linspace(math.atan2(abs(t), freedom**0.5), np.pi / 2, _NUM_ANGLES)
    density = np.clip(np.cos(angles), 0, None) ** (freedom - 1)
    outside = (density[1:] + density[:-1]).sum() / 2 * (angles[1] - angles[0])
    whole = math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)
    return min(1.0, float(2 * outside / (math.pi**0.5 * math.exp(whole))))


def find_draws_p_value(draws: Floats) -> float:
    """Return twice the share of bootstrap draws on the rarer side of 0, at least one of them."""
    rarer = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return min(1.0, 2 * max(rarer, 1) / len(draws))


def adjust_holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number by Holm's method; None is no test and stays.

    The k-th smallest of m is multiplied by m - k + 1, and none is smaller than the one before it.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - rank)))
        adjusted[place] = largest
    return adjusted


@dataclass(frozen=True)
class Verdict:
    """What the test of one difference says.

    Attributes:
        is_primary: True for the score that was chosen beforehand, False for exploratory ones.
        p_value: of the test by itself; None if there is no test.
        p_adjusted: adjusted for all tests of its role: those of all comparisons at once.
        differs: True if the adjusted p-value is at most 0.05.
    """

    is_primary: bool
    p_value: float | None
    p_adjusted: float | None
    differs: bool


def decide_differences(
    comparisons: Sequence[Mapping[str, float | None]], primary: str
) -> list[dict[str, Verdict]]:
    """Return the verdicts of each comparison by score, the primary score first.

    Primary and exploratory scores are adjusted separately, each over all comparisons.

    Args:
        comparisons: for each comparison, the p-values by score.
        primary: the name of the score that was chosen beforehand.
    """
    verdicts: list[dict[str, Verdict]] = [{} for _ in comparisons]
    for is_primary in (True, False):
        places = [
            (number, name, p if p is not None and math.isfinite(p) else None)
            for number, one in enumerate(comparisons)
            for name, p in one.items()
            if (name == primary) == is_primary
        ]
        adjusted = adjust_holm([p for _, _, p in places])
        for (number, name, p), q in zip(places, adjusted, strict=True):
            verdicts[number][name] = Verdict(is_primary, p, q, q is not None and q <= ALPHA)
    return verdicts


@dataclass(frozen=True)
class SeedDifference:
    """The difference of a score between two groups of runs.

    Attributes:
        mean, mean_against: the means of the groups.
        value: their difference.
        deviation: the standard deviation of the difference between two runs.
        low, high: the 95 % interval of the value, by Student's t.
        p_value: the probability of a difference as large if the groups do not differ.
    """

    mean: float
    mean_against: float
    value: float
    deviation: float
    low: float
    high: float
    p_value: float


def compare_groups(ours: Floats, theirs: Floats, is_paired: bool) -> SeedDifference:
    """Return the difference `ours` - `theirs` of the scores of two groups of runs: [N], [M].

    Args:
        ours, theirs: the scores, one a run; two or more in each group.
        is_paired: True if equal indices have equal seeds, so that the luck of a seed cancels out.
            Otherwise the groups may differ in size and in deviation (Welch, 1947).
    """
    mean, other = float(ours.mean()), float(theirs.mean())
    if is_paired:
        deviation, freedom = float((ours - theirs).std(ddof=1)), float(len(ours) - 1)
        error = deviation / len(ours) ** 0.5
    else:
        variances = ours.var(ddof=1), theirs.var(ddof=1)
        parts = variances[0] / len(ours), variances[1] / len(theirs)
        deviation, error = float(sum(variances) ** 0.5), float(sum(parts) ** 0.5)
        squares = parts[0] ** 2 / (len(ours) - 1) + parts[1] ** 2 / (len(theirs) - 1)
        freedom = float(sum(parts) ** 2 / squares) if squares else 1.0
    value, half = mean - other, find_t(freedom) * error
    p_value = find_p_value(_divide(value, error), freedom)
    return SeedDifference(mean, other, value, deviation, value - half, value + half, p_value)


def compare_pairs(ours: Floats, theirs: Floats, strata: NDArray[np.int64]) -> SeedDifference:
    """Return the difference of two groups of runs on test items, over other seeds and other items.

    The variance is that of crossed random effects: runs of a seed share its luck, and all runs
    share the difficulty of an item. Each stratum has the same weight, and items are drawn within
    strata (Satterthwaite, 1946, for the degrees of freedom).

    Args:
        ours, theirs: the score of each run on each item, equal seeds at equal indices: [S, N].
        strata: the number of the stratum of each item, such as its paradigm: [N].
    """
    sizes = np.bincount(strata)
    weights = len(strata) / (np.count_nonzero(sizes) * sizes[strata])
    differences = (ours - theirs) * weights
    num_seeds, num_items = differences.shape
    by_seed = differences.mean(1)
    value, deviation = float(by_seed.mean()), float(by_seed.std(ddof=1))
    centered = differences - _average(differences, strata)
    by_item = centered.mean(0)
    rest = centered - by_item
    # Mean squares of seeds, of items, and of their interaction, the latter two within strata.
    freedoms = num_seeds - 1, max(1, num_items - np.count_nonzero(sizes))
    seeds = num_items * deviation**2
    items = num_seeds * float((by_item**2).sum()) / freedoms[1]
    both = float((rest**2).sum()) / (freedoms[0] * freedoms[1])
    extra = max(0.0, items - both)
    error = ((seeds + extra) / differences.size) ** 0.5
    squares = seeds**2 / freedoms[0]
    if extra:
        squares += items**2 / freedoms[1] + both**2 / (freedoms[0] * freedoms[1])
    freedom = max((seeds + extra) ** 2 / squares if squares else 1.0, float(freedoms[0]))
    half = find_t(freedom) * error
    mean, other = (float((group * weights).mean()) for group in (ours, theirs))
    p_value = find_p_value(_divide(value, error), freedom)
    return SeedDifference(mean, other, value, deviation, value - half, value + half, p_value)


def _average(values: Floats, strata: NDArray[np.int64]) -> Floats:
    """Return for each item the mean of its stratum, by row: [S, N]."""
    sizes = np.maximum(1, np.bincount(strata))
    means = np.stack([np.bincount(strata, row) / sizes for row in values])
    return means[:, strata]


def _divide(value: float, error: float) -> float:
    """Return t; a difference without any spread is infinitely far from 0."""
    return value / error if error else math.copysign(math.inf, value) if value else 0.0


def mean_interval_of_seeds(values: Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of one group of runs by Student's t; None for one run.

    Args:
        values: the scores, one a run: [N].
    """
    if len(values) < 2:
        return None
    half = find_t(len(values) - 1) * float(values.std(ddof=1)) / len(values) ** 0.5
    return float(values.mean()) - half, float(values.mean()) + half


def find_power(effect: float, num_seeds: int, is_paired: bool) -> float:
    """Return the probability that a difference is found at the 5 % level.

    Args:
        effect: the true difference divided by the deviation of the difference between two runs.
        num_seeds: runs in each group, two or more.
        is_paired: True if the groups have the same seeds.
    """
    freedom = (1 if is_paired else 2) * (num_seeds - 1)
    threshold, shift = find_t(freedom), abs(effect) * num_seeds**0.5
    # The noncentral t is a shifted normal variable, divided by the estimate of its deviation.
    width = (1 + 8 / freedom**0.5) / _NUM_SPREADS
    spreads = width * (np.arange(_NUM_SPREADS) + 0.5)
    logarithm = (freedom - 1) * np.log(spreads) - freedom * spreads**2 / 2
    weights = np.exp(logarithm - logarithm.max())
    weights /= weights.sum()
    outside = [
        math.erfc((threshold * spread - shift) / 2**0.5)
        + math.erfc((threshold * spread + shift) / 2**0.5)
        for spread in spreads.tolist()
    ]
    return float(weights @ np.array(outside)) / 2


def count_seeds_needed(value: float, deviation: float, is_paired: bool) -> int | None:
    """Return the fewest seeds that find a true difference in four of five experiments.

    None if it takes more than a thousand.

    Args:
        value: the true difference of the means.
        deviation: the standard deviation of the difference between two runs.
        is_paired: True if the groups have the same seeds.
    """
    if not deviation:
        return 2 if value else None
    low, high = 2, MAX_SEEDS
    if not value or find_power(value / deviation, high, is_paired) < POWER:
        return None
    while low < high:
        middle = (low + high) // 2
        if find_power(value / deviation, middle, is_paired) >= POWER:
            high = middle
        else:
            low = middle + 1
    return low


def find_detectable(deviation: float, num_seeds: int, is_paired: bool) -> float:
    """Return the smallest true difference that so many seeds find in four of five experiments.

    Args:
        deviation: the standard deviation of the difference between two runs.
        num_seeds: runs in each group, two or more.
        is_paired: True if the groups have the same seeds.
    """
    low, high = 0.0, 64.0
    for _ in range(24):
        middle = (low + high) / 2
        if find_power(middle, num_seeds, is_paired) >= POWER:
            high = middle
        else:
            low = middle
    return high * deviation
