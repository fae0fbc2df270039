"""Stateless random numbers: a draw is a hash of its purpose and position.

Every random decision in the data path (the order of segments, the masked positions, the
replacements) is ``hash(seed, epoch, row, purpose, position)``. It does not depend on earlier draws,
so every rank, worker or resumed run builds the same batch.

The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014), a bijection of 64-bit integers that passes BigCrush as a counter
generator; NumPy's unsigned integers wrap around, as the algorithm requires.
"""

from enum import IntEnum
from functools import reduce
from itertools import takewhile
from typing import cast

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LARGEST = 2**64 - 1


class Purpose(IntEnum):
    """The kinds of random decisions; two kinds never share a draw."""

    ORDER = 1  # of segments: permutation
    ROW_ORDER = 2  # of the rows of a window: rows
    MASK_COUNT = 3  # this one to WORD_OFFSET: masking
    MASK_CHOICE = 4
    SPAN_LENGTH = 5
    CORRUPTION = 6
    REPLACEMENT = 7
    WORD_OFFSET = 8
    PAIR_SPLIT = 9  # this one to PAIR_SOURCE: pairs
    PAIR_LABEL = 10
    PAIR_SOURCE = 11
    SAMPLING = 12  # of tokens by ELECTRA's generator: batch
    CAUSAL_STEP = 13  # loader
    MIXTURE = 14  # of the rows of several sources: rows
    CANDIDATE = 15  # loader
    SECOND_REPLACEMENT = 16  # masking


def mix(values: Bits) -> Bits:
    """Hash 64-bit integers of any shape, one to one."""
    values = values ^ (values >> np.uint64(30))
    values *= _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values


def derive_keys(*parts: object) -> Bits:
    """Return a key for each combination of `parts`: integers or broadcastable arrays."""
    first = list(takewhile(lambda part: isinstance(part, int), parts))
    keys = np.asarray([reduce(_add_part, cast(list[int], first), 0)], np.uint64)
    for part in parts[len(first) :]:
        bits = np.atleast_1d(np.asarray(part, np.int64)).view(np.uint64)  # also of negative ones
        keys = mix(keys + (bits + np.uint64(1)) * _GOLDEN)
    return keys


def _add_part(key: int, part: int) -> int:
    """Return the next key of a single combination, ten times as fast as with arrays."""
    value = (key + (part + 1) * int(_GOLDEN)) & _LARGEST
    value = ((value ^ (value >> 30)) * int(_FIRST)) & _LARGEST
    value = ((value ^ (value >> 27)) * int(_SECOND)) & _LARGEST
    return value ^ (value >> 31)


def draw_bits(keys: Bits, purpose: Purpose, positions: NDArray[np.int64]) -> Bits:
    """Draw 64 bits for each key and position.

    Args:
        keys: [R], for instance one for each row.
        positions: [L] for all keys, or [R, L] with a row for each key.

    Returns:
        [R, L].
    """
    offsets = (positions.view(np.uint64) + np.uint64(1)) * _GOLDEN
    return mix(derive_keys(keys.view(np.int64), purpose)[:, None] + offsets)


def to_unit(bits: Bits) -> NDArray[np.float64]:
    """Convert the upper 53 bits of draws to numbers in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_fractions(
    keys: Bits, purpose: Purpose, positions: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Draw numbers in [0, 1) with 24 bits, which float32 holds exactly; see `draw_bits`."""
    bits = draw_bits(keys, purpose, positions)
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
