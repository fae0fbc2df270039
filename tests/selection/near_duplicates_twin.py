"""The search for near duplicates in one process, as it reads in a book: the reference."""

import numpy as np
from numpy.typing import NDArray

from maskwright.selection.near_duplicates import NUM_HASHES, Signatures, choose_rows


def find_near_duplicates(signatures: Signatures, threshold: float) -> list[int]:
    """The smallest of the N documents that each is similar to, directly or through others: [N].

    Documents whose signatures agree in a band are compared with the first of them.
    """
    first, rows = list(range(len(signatures))), choose_rows(threshold)
    for start in range(0, NUM_HASHES - rows + 1, rows):
        leaders: dict[bytes, int] = {}
        for number, signature in enumerate(signatures):
            leader = leaders.setdefault(signature[start : start + rows].tobytes(), number)
            if _estimate(signatures[leader], signature) >= threshold:
                unite(first, leader, number)
    return [find(first, number) for number in range(len(first))]


def _estimate(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> float:
    return float((one == other).mean())


def unite(first: list[int], one: int, other: int) -> None:
    """Union-find: `first` names for each number a smaller one of its set, or itself."""
    a, b = find(first, one), find(first, other)
    first[max(a, b)] = min(a, b)


def find(first: list[int], number: int) -> int:
    """The smallest number of a set."""
    while first[number] != number:
        number = first[number]
    return number
