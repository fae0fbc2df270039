"""What a uniformly random order looks like, as statistics with p-values.

`examine` and `compare` put the same questions to any order: `maskwright.data.permutation.permute`,
numpy's, or one that is bad on purpose. A p-value is the probability that a uniformly random order
looks at least as odd, to either side (too regular is odd, too); far below 1e-6 it is none.

The laws are exact or nearly so from 50 elements on: chi-square, normal, Poisson. Runs and cycles
follow Knuth, "The Art of Computer Programming", volume 2, 3.3.2, and volume 1, 1.3.3.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Order = Callable[..., Ints]  # like permute: (indices, size, *key) -> images

_LEAST_EXPECTED = 10.0  # in a cell of a chi-square


def p_of_chi_square(value: float, freedom: int) -> float:
    below, above = _gamma_shares(freedom / 2, value / 2)
    return 2 * min(below, above)


def p_of_z(value: float) -> float:
    return math.erfc(abs(value) / math.sqrt(2))


def p_of_count(count: int, mean: float) -> float:
    """Of a Poisson variable."""
    at_most = _gamma_shares(count + 1, mean)[1]
    at_least = _gamma_shares(count, mean)[0] if count else 1.0
    return min(1.0, 2 * min(at_most, at_least))


def _gamma_shares(shape: float, value: float) -> tuple[float, float]:
    """How much of a gamma distribution lies below and above a value."""
    numbers = torch.tensor([shape, value], dtype=torch.float64)
    return float(torch.special.gammainc(*numbers)), float(torch.special.gammaincc(*numbers))


def p_of_cells(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Chi-square of counts that add up to as much as is expected."""
    return p_of_chi_square(float(((counts - expected) ** 2 / expected).sum()), counts.size - 1)


@dataclass(frozen=True)
class Sample:
    """What several keys make of the same consecutive indices.

    Attributes:
        size: N, of the order.
        indices: [n], n = N for whole orders.
        images: [K, n].
        far: by lag, the images of ``indices + lag`` where these lie beyond `indices`.
    """

    size: int
    indices: Ints
    images: Ints
    far: dict[int, Ints]

    @property
    def is_whole(self) -> bool:
        return len(self.indices) == self.size

    @property
    def variance(self) -> float:
        """Of one image."""
        return (self.size**2 - 1) / 12

    def select(self, keys: slice) -> "Sample":
        """The sample of some of the keys."""
        far = {lag: images[keys] for lag, images in self.far.items()}
        return Sample(self.size, self.indices, self.images[keys], far)

    def neighbors(self, lag: int) -> tuple[Ints, Ints]:
        """Images of all indices and of those `lag` further on: [K, n] and [K, n], or shorter."""
        if lag in self.far:
            return self.images, self.far[lag]
        return self.images[:, :-lag], self.images[:, lag:]

    def pairs(self, lag: int) -> tuple[Ints, Ints]:
        """A quarter of `neighbors`, flat: disjoint, and so few as to be nearly independent."""
        first, second = self.neighbors(lag)
        chosen = np.arange(first.shape[1]) // lag % 8 == 0
        return first[:, chosen].ravel(), second[:, chosen].ravel()


def take_sample(
    order: Order, size: int, keys: Sequence[Sequence[int]], start: int = 0, length: int = 0
) -> Sample:
    """The images of `length` indices from `start` on, or of all, under each key."""
    indices = np.arange(start, start + (length or size))

    def map_all(indices: Ints) -> Ints:
        return np.stack([order(indices, size, *key) for key in keys])

    lags = [lag for lag in list_lags(size) if lag > len(indices) // 2]
    far = {lag: map_all(indices + lag) for lag in lags if size > len(indices) + start + lag}
    return Sample(size, indices, map_all(indices), far)


def _bins(size: int, most: int) -> tuple[int, NDArray[np.float64]]:
    """B bins of ``range(size)``, ``value * B // size``, and the share of each."""
    count = min(size, most)
    edges = -(-np.arange(count + 1) * size // count)
    return count, np.diff(edges) / size


def _p_of_values(values: Ints, size: int, most: int = 64) -> float:
    """Values that are each uniform over ``range(size)``."""
    num_bins, shares = _bins(size, most)
    counts = np.bincount((values * num_bins // size).ravel(), minlength=num_bins)
    return p_of_cells(counts, values.size * shares)


def places(sample: Sample) -> float:
    """Every index goes everywhere equally often: a table of index and image, in coarse bins."""
    if not sample.is_whole:
        return _p_of_values(sample.images, sample.size)
    return _p_of_table(np.broadcast_to(sample.indices, sample.images.shape), sample.images, sample)


def _p_of_table(first: Ints, second: Ints, sample: Sample) -> float:
    """Pairs of places that are independent of one another, in 16 times 16 cells."""
    size = sample.size
    num_bins, shares = _bins(size, 16)
    cells = first * num_bins // size * num_bins + second * num_bins // size
    counts = np.bincount(cells.ravel(), minlength=num_bins**2)
    expected = (first.size * np.outer(shares, shares)).ravel()
    value = float(((counts - expected) ** 2 / expected).sum())
    if sample.is_whole:  # the sums of all lines and columns are given
        return p_of_chi_square(value * (size - 1) / size, (num_bins - 1) ** 2)
    return p_of_chi_square(value, num_bins**2 - 1)


def displacements(sample: Sample) -> float:
    """No way to go, ``image - index`` around the circle, is preferred."""
    return _p_of_values((sample.images - sample.indices) % sample.size, sample.size)


def trend(sample: Sample) -> float:
    """Correlation of index and image."""
    weights = sample.indices - sample.indices.mean()
    total = float((weights * (sample.images - (sample.size - 1) / 2)).sum())
    deviation = sample.variance * sample.size / (sample.size - 1) * (weights**2).sum()
    return p_of_z(total / math.sqrt(deviation * len(sample.images)))


def fixed_points(sample: Sample) -> float:
    """Images that equal their index: Poisson, 1 in a whole order."""
    count = int((sample.images == sample.indices).sum())
    return p_of_count(count, sample.images.size / sample.size)


def kept_neighbours(sample: Sample) -> float:
    """Neighbors whose images are neighbors, in this order or the other: Poisson."""
    steps = np.abs(np.diff(sample.images, axis=1))
    return p_of_count(int((steps == 1).sum()), 2 * steps.size / sample.size)


def ascents(sample: Sample) -> float:
    """How often the next image is larger: half of the time, with the variance (n + 1) / 12."""
    count = int((np.diff(sample.images, axis=1) > 0).sum())
    num_keys, length = sample.images.shape
    deviation = math.sqrt(num_keys * (length + 1) / 12)
    return p_of_z((count - num_keys * (length - 1) / 2) / deviation)


def runs(sample: Sample) -> float:
    """Lengths of increasing runs. The image after a run is left out: then they are independent."""
    lengths: list[int] = []
    for row in sample.images:
        first = 0
        for last in np.flatnonzero(np.diff(row) < 0).tolist():
            if last >= first:
                lengths.append(last + 1 - first)
                first = last + 2
    if not lengths:
        return 0.0  # nothing but ascents
    longest = max(lengths)
    law = np.array([1 / math.factorial(n) - 1 / math.factorial(n + 1) for n in range(1, 30)])
    kept = max(2, int((law * len(lengths) >= _LEAST_EXPECTED).sum()))
    counts = np.bincount(lengths, minlength=max(longest, kept) + 1)[1:]
    counts = np.append(counts[: kept - 1], counts[kept - 1 :].sum())
    law = np.append(law[: kept - 1], 1 - law[: kept - 1].sum())
    return p_of_cells(counts, law * len(lengths))


def order_types(sample: Sample, width: int = 4) -> float:
    """Each of the 24 orders of four neighboring images is as frequent as any other."""
    used = sample.images.shape[1] // width * width
    windows = sample.images[:, :used].reshape(-1, width)
    return arrangements(np.argsort(windows, axis=1))


def arrangements(images: Ints) -> float:
    """Whole orders, [K, N], of which each of the N! is as frequent as any other."""
    size = images.shape[1]
    codes = images @ size ** np.arange(size)
    possible = np.sort(np.array(list(permutations(range(size)))) @ size ** np.arange(size))
    counts = np.bincount(np.searchsorted(possible, codes), minlength=len(possible))
    return p_of_cells(counts, np.full(len(possible), len(images) / len(possible)))


def _count_cycles(sample: Sample) -> Ints:
    """[K], by doubling: after j rounds every label is the least of 2^j places on its cycle."""
    labels, jump = np.broadcast_to(sample.indices, sample.images.shape), sample.images
    for _ in range(sample.size.bit_length()):
        labels = np.minimum(labels, np.take_along_axis(labels, jump, axis=1))
        jump = np.take_along_axis(jump, jump, axis=1)
    return (labels == sample.indices).sum(axis=1)


def cycles(sample: Sample) -> float:
    """The number of cycles has mean H_N and variance H_N less the sum of 1 / n^2."""
    inverse = 1 / np.arange(1, sample.size + 1)
    num_keys = len(sample.images)
    deviation = math.sqrt(num_keys * (inverse.sum() - (inverse**2).sum()))
    return p_of_z(float(_count_cycles(sample).sum() - num_keys * inverse.sum()) / deviation)


def parity(sample: Sample) -> float:
    """Half of all orders are an even number of swaps."""
    num_odd = int(((sample.size - _count_cycles(sample)) % 2).sum())
    num_keys = len(sample.images)
    return p_of_z((num_odd - num_keys / 2) / math.sqrt(num_keys / 4))


def distances(sample: Sample, lag: int) -> float:
    """How far apart the images of a pair are: d with the probability 2 (N - d) / (N (N - 1))."""
    first, second = sample.pairs(lag)
    size = sample.size

    def share_up_to(distance: float) -> float:
        return 1 - (size - distance) * (size - distance - 1) / (size * (size - 1))

    doubling = 2.0 ** np.arange(math.log2(size) - 5)  # cells where neighbors would stay together
    even = np.floor(size * (1 - np.sqrt(1 - np.arange(1, 32) / 32)))  # and cells of equal shares
    edges = [0.0]
    for edge in np.unique(np.concatenate([doubling, even])).tolist():
        expected = (share_up_to(edge) - share_up_to(edges[-1])) * len(first)
        if edge < size - 1 and expected >= _LEAST_EXPECTED:
            edges.append(edge)
    edges.append(size - 1.0)
    cells = np.searchsorted(edges, np.abs(first - second), side="left") - 1
    counts = np.bincount(cells, minlength=len(edges) - 1)
    return p_of_cells(counts, len(first) * np.diff([share_up_to(edge) for edge in edges]))


def correlation(sample: Sample, lag: int) -> float:
    """Serial correlation of the images of indices `lag` apart."""
    middle, variance = (sample.size - 1) / 2, sample.variance
    first, second = sample.neighbors(lag)
    total = float(((first - middle) * (second - middle) + variance / (sample.size - 1)).sum())
    return p_of_z(total / (variance * math.sqrt(first.size)))


def shared_lines(sample: Sample, lag: int, side: int) -> float:
    """How often the images of a pair are the same modulo `side`, as in one line of a grid."""
    first, second = sample.pairs(lag)
    size = sample.size
    shorter, longer = size // side, size % side  # `longer` lines have one number more
    same = longer * (shorter + 1) * shorter + (side - longer) * shorter * (shorter - 1)
    count = int((first % side == second % side).sum())
    return p_of_count(count, len(first) * same / (size * (size - 1)))


def matches(first: Sample, second: Sample) -> float:
    """Indices with the same image under two keys: Poisson, 1 for two whole orders."""
    count = int((first.images == second.images).sum())
    return p_of_count(count, first.images.size / first.size)


def differences(first: Sample, second: Sample) -> float:
    """Between two keys the images of an index move any way around the circle."""
    return _p_of_values((second.images - first.images) % first.size, first.size)


def joint_places(first: Sample, second: Sample) -> float:
    """Where an image is under one key says nothing of where it is under another."""
    return _p_of_table(first.images, second.images, first)


STATISTICS: dict[str, Callable[[Sample], float]] = {
    "places": places,
    "displacements": displacements,
    "trend": trend,
    "fixed points": fixed_points,
    "kept neighbors": kept_neighbours,
    "ascents": ascents,
    "runs": runs,
    "order types": order_types,
}
WHOLE_STATISTICS = {"cycles": cycles, "parity": parity}
PAIR_STATISTICS: dict[str, Callable[[Sample, int], float]] = {
    "distances": distances,
    "correlation": correlation,
}
KEY_STATISTICS: dict[str, Callable[[Sample, Sample], float]] = {
    "matches": matches,
    "differences": differences,
    "joint places": joint_places,
}


def list_lags(size: int) -> list[int]:
    """Neighbors, and what could be neighbors in a grid of about the root of `size`."""
    root = math.isqrt(size)
    return [1, 2, root - 1, root, root + 1, root + 2]


def examine(sample: Sample) -> Iterator[tuple[str, float]]:
    """All statistics of the orders of several keys, with their p-values."""
    for name, statistic in STATISTICS.items():
        yield name, statistic(sample)
    if sample.is_whole:
        for name, statistic in WHOLE_STATISTICS.items():
            yield name, statistic(sample)
    for lag in list_lags(sample.size):
        for name, statistic in PAIR_STATISTICS.items():
            yield f"{name} at lag {lag}", statistic(sample, lag)
        for side in list_lags(sample.size)[2:]:
            yield f"shared lines of {side} at lag {lag}", shared_lines(sample, lag, side)


def compare(first: Sample, second: Sample) -> Iterator[tuple[str, float]]:
    """All statistics of two rows of keys, such as each epoch and the next."""
    for name, statistic in KEY_STATISTICS.items():
        yield name, statistic(first, second)
