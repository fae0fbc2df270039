"""Near duplicates by MinHash, locality-sensitive hashing and connected components.

Broder 1997; the banding is that of Leskovec, Rajaraman and Ullman (Mining of Massive Datasets,
section 3.4). Signatures estimate the Jaccard similarity of the word 5-grams of two documents. When
signatures agree in a band, each document is compared with the earliest one by whole signatures.

`maskwright.preparation.tasks` distributes the work: signatures and bands (stage `read`), similar
pairs (`near`), rounds of `connect`. tests/selection/near_duplicates_twin.py does it in one process.
Shapes: N documents.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.selection.words import Hashes, join_hashes

NUM_HASHES = 128  # in a signature; the standard error of a similarity of 0.8 is 0.035
SHINGLE = 5  # words
_SEED = 1
_RECALL = 0.99  # smallest share of the pairs at the threshold that agree in some band
_MULTIPLIER = np.uint64(0xC2B2AE3D27D4EB4F)
_INVERSE = np.uint64(pow(0xC2B2AE3D27D4EB4F, -1, 1 << 64))
BAND_BITS = 57  # of a hash; the 7 bits above are the number of its band, at most 128
BAND = np.dtype([("value", "<u8"), ("key", "<u8")])  # the hash of a band, and its document
# A document (its key times an odd number, which spreads places evenly) and one of its component.
PAIR = np.dtype([("place", "<u8"), ("member", "<u8")])
_SIGNED_AT_ONCE = 1_000  # documents; rensa returns Python integers, 5 kB per document

Signatures = NDArray[np.uint32]  # [N, 128]
Records = NDArray[Any]  # of a structured dtype


class Signer:
    """Function that computes MinHash signatures.

    Raises:
        MissingPackageError: rensa is not installed.
    """

    def __init__(self) -> None:
        package: Any = import_extra("rensa", "selection", "the search for near duplicates")
        self._digest: Any = package.RMinHash.digest_matrix_from_flat_token_hashes

    def __call__(self, documents: list[Hashes]) -> Signatures:
        """Return the MinHash signatures [N, 128] of the word shingles of N documents. A document of
        fewer than 5 words is one shingle.
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
    """Return the hashes per band: the most with which 99 % of the pairs at the threshold meet.

    At 0.8 this is 6, in 21 bands; then 28 % of the pairs with a similarity of 0.5 are compared.
    """
    rows = 1
    while 1 - (1 - threshold ** (rows + 1)) ** (NUM_HASHES // (rows + 1)) >= _RECALL:
        rows += 1
    return rows


def count_bands(threshold: float) -> int:
    """Return the number of bands of a signature."""
    return NUM_HASHES // choose_rows(threshold)


def hash_bands(signatures: Signatures, threshold: float, first: int) -> Records:
    """Return the hash of each band of N signatures, as `BAND`: [N * bands].

    The first document has the key `first`; the next documents have the next keys.
    """
    rows = choose_rows(threshold)
    found = np.empty((count_bands(threshold), len(signatures)), BAND)
    found["key"] = np.arange(first, first + len(signatures), dtype=np.uint64)
    for band in range(len(found)):
        hashes = np.zeros(len(signatures), np.uint64)
        for column in range(band * rows, (band + 1) * rows):
            hashes = (hashes + signatures[:, column]) * _MULTIPLIER
        found["value"][band] = (hashes >> np.uint64(64 - BAND_BITS)) + np.uint64(band << BAND_BITS)
    return found.reshape(-1)


def to_pairs(ones: Hashes, others: Hashes) -> Records:
    """Return the first pairs for `connect`: each document with itself and its neighbors."""
    sides = [(ones, ones), (ones, others), (others, ones), (others, others)]
    return np.concatenate([_make_pairs(*side) for side in sides])


def _make_pairs(nodes: Hashes, members: Hashes) -> Records:
    return np.rec.fromarrays([nodes * _MULTIPLIER, members], dtype=PAIR)


@dataclass(frozen=True)
class Round:
    """The result of one round of `connect`: the pairs of the next one, the documents with a smaller
    neighbor, the smallest neighbor of each, and True unless the components are complete.
    """

    pairs: Records
    nodes: Hashes
    least: Hashes
    changed: bool


def connect(pairs: Records) -> Round:
    """Run a round of Hash-to-Min: connect each document's smallest neighbor with all its neighbors.

    Rastogi et al. 2013, Finding Connected Components in Map-Reduce in Logarithmic Rounds. When a
    round changes nothing, each document is paired with the smallest document of its component, and
    that one with all. `pairs` are all pairs of some places, in any order, possibly repeated.
    """
    pairs = _sort_pairs(pairs)
    place, member = pairs["place"], pairs["member"]
    begins = np.ones(len(place), np.bool_)
    begins[1:] = place[1:] != place[:-1]
    starts = np.flatnonzero(begins)
    nodes, least = place[starts] * _INVERSE, member[starts]
    sizes = np.diff(np.append(starts, len(place)))
    spread = np.repeat(least, sizes)
    told = np.concatenate([_make_pairs(spread, member), _make_pairs(member, spread)])
    goes = nodes != least
    return Round(_sort_pairs(told), nodes[goes], least[goes], bool((goes & (sizes > 1)).any()))


def _sort_pairs(pairs: Records) -> Records:
    pairs = pairs[np.lexsort((pairs["member"], pairs["place"]))]
    return pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
