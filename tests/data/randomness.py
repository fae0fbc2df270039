"""What a uniformly random order looks like, as statistics with p-values.

`examine` and `compare` put the same questions to any order: `maskwright.data.permutation.permute`,
numpy's, or one that is bad on purpose. A p-value is the probability that a uniformly random order
looks at least as odd, to either side (too regular is odd, too); far below 1e-6 it is none.

The laws are exact or nearly so from 50 elements on: chi-square, normal, Poisson.
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


def places(sample: Sample) -> float:
    """Every index goes everywhere equally often: a table of index and image, in coarse bins."""
    if sample.is_whole:
        indices = np.broadcast_to(sample.indices, sample.images.shape)
        return _p_of_table(indices, sample.images, sample)
    num_bins, shares = _bins(sample.size, 64)
    bins = (sample.images * num_bins // sample.size).ravel()
    return p_of_cells(np.bincount(bins, minlength=num_bins), sample.images.size * shares)


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


def kept_neighbors(sample: Sample) -> float:
    """Neighbors whose images are neighbors, in this order or the other: Poisson."""
    steps = np.abs(np.diff(sample.images, axis=1))
    return p_of_count(int((steps == 1).sum()), 2 * steps.size / sample.size)


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


def joint_places(first: Sample, second: Sample) -> float:
    """Where an image is under one key says nothing of where it is under another."""
    return _p_of_table(first.images, second.images, first)


STATISTICS: dict[str, Callable[[Sample], float]] = {
    "places": places,
    "kept neighbors": kept_neighbors,
    "order types": order_types,
}
KEY_STATISTICS: dict[str, Callable[[Sample, Sample], float]] = {
    "matches": matches,
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
        yield "parity", parity(sample)
    for lag in list_lags(sample.size):
        yield f"distances at lag {lag}", distances(sample, lag)
        for side in list_lags(sample.size)[2:]:
            yield f"shared lines of {side} at lag {lag}", shared_lines(sample, lag, side)


def compare(first: Sample, second: Sample) -> Iterator[tuple[str, float]]:
    """All statistics of two rows of keys, such as each epoch and the next."""
    for name, statistic in KEY_STATISTICS.items():
        yield name, statistic(first, second)
