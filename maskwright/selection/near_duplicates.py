"""Near duplicates by MinHash and locality-sensitive hashing, most of it on disk.

Broder 1997; the banding is that of Leskovec, Rajaraman and Ullman (Mining of Massive Datasets,
section 3.4). The signature of a document says of its 5-grams of words how similar they are to
those of another. Signatures lie on disk; a band of all of them at a time is hashed and sorted, and
documents that meet in a band are compared by their whole signatures. N documents.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.selection.words import Hashes, join_hashes

NUM_HASHES = 128  # of a signature: similarities are known to within 0.03
SHINGLE = 5  # words
_SEED = 1
_RECALL = 0.99  # of pairs as similar as the threshold, how many meet in a band
_MULTIPLIER = np.uint64(0xC2B2AE3D27D4EB4F)
_PAIRS_AT_ONCE = 1 << 16
_SIGNED_AT_ONCE = 1_000  # documents: rensa gives their hashes as numbers of Python, 5 kB for each

Signatures = NDArray[np.uint32]  # [N, 128]


class Signer:
    """Signatures of documents.

    Raises:
        MissingPackageError: rensa is not installed.
    """

    def __init__(self) -> None:
        package: Any = import_extra("rensa", "selection", "the search for near duplicates")
        self._digest: Any = package.RMinHash.digest_matrix_from_flat_token_hashes

    def __call__(self, documents: list[Hashes]) -> Signatures:
        """Return the MinHash signatures [N, 128] of the word shingles of N documents; a short one
        is one shingle.
        """
        starts = range(0, len(documents), _SIGNED_AT_ONCE)
        signed = [self._sign(documents[n : n + _SIGNED_AT_ONCE]) for n in starts]
        return np.concatenate([np.empty((0, NUM_HASHES), np.uint32), *signed])

    def _sign(self, documents: list[Hashes]) -> Signatures:
        shingles = [_shingle(hashes) for hashes in documents]
        ends = np.cumsum([0, *map(len, shingles)], dtype=np.uint64)
        rows = self._digest(np.concatenate(shingles), ends, NUM_HASHES, _SEED).to_rows()
        return np.array(rows, np.uint32)


def _shingle(hashes: Hashes) -> Hashes:
    if not len(hashes):
        return np.zeros(1, np.uint64)
    ((_, shingles),) = join_hashes(hashes, [min(SHINGLE, len(hashes))])
    return shingles


def choose_rows(threshold: float) -> int:
    """Return the hashes in a band: the most with which 99 % of the pairs at the threshold meet in
    some band.

    At 0.8 these are 6, in 21 bands: of pairs with a similarity of 0.5 then 28 % are compared.
    """
    rows = 1
    while 1 - (1 - threshold ** (rows + 1)) ** (NUM_HASHES // (rows + 1)) >= _RECALL:
        rows += 1
    return rows


def find_near_duplicates(signatures: Signatures, threshold: float) -> NDArray[np.bool_]:
    """Return which of N documents are similar to an earlier one, directly or through others: [N].

    Args:
        signatures: [N, 128]; may be mapped from a file.
        threshold: the Jaccard similarity of the shingles from which on two are similar.
    """
    count, rows = len(signatures), choose_rows(threshold)
    first = np.arange(count)  # the earliest document known to be like each one
    for start in range(0, NUM_HASHES - rows + 1, rows):
        leaders, followers = _meet(_hash_band(signatures, start, rows))
        for begin in range(0, len(leaders), _PAIRS_AT_ONCE):
            part = slice(begin, begin + _PAIRS_AT_ONCE)
            equal = (signatures[leaders[part]] == signatures[followers[part]]).mean(axis=1)
            similar = equal >= threshold
            _unite(first, leaders[part][similar], followers[part][similar])
    return np.array([_find_first(first, n) != n for n in range(count)], bool)


def _hash_band(signatures: Signatures, start: int, rows: int) -> Hashes:
    hashes = np.zeros(len(signatures), np.uint64)
    for column in range(start, start + rows):
        hashes = (hashes + signatures[:, column]) * _MULTIPLIER
    return hashes


def _meet(hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return pairs with the same hash: the earliest of each group with each other member."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])[: len(order)]
    leaders = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    return leaders[~begins], order[~begins]


def _unite(first: NDArray[np.intp], ones: NDArray[np.intp], others: NDArray[np.intp]) -> None:
    for one, other in zip(ones.tolist(), others.tolist(), strict=True):
        a, b = _find_first(first, one), _find_first(first, other)
        first[max(a, b)] = min(a, b)


def _find_first(first: NDArray[np.intp], number: int) -> int:
    while first[number] != number:
        first[number] = first[first[number]]
        number = int(first[number])
    return number
