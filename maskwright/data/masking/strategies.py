"""The common part of all masking strategies.

A strategy gives every token a *time*: a random number that says when it would be hidden if more
and more tokens were. The tokens with the smallest times are hidden until a row's quota is full;
or, where tokens with equal times form a group (a word), groups are hidden whole until the quota is
about full. So the number of hidden tokens of a row does not depend on other rows, and a strategy
is one function.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.draws import Bits, Purpose, derive_keys, to_unit

Flags = NDArray[np.bool_]

LAST = np.uint64(2**64 - 1)  # the time of tokens that are never hidden


class MaskingStrategy(Protocol):
    """What a masking strategy provides."""

    #: Tokens of one time are hidden together or not at all; otherwise counts are exact.
    whole_groups: bool

    #: Whether it looks at where words begin.
    needs_words: bool

    #: Slots that a row may need beyond its quota, when the last group reaches beyond it.
    extra_slots: int

    def draw_times(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        """Times of all tokens: [R], [R, L], [R, L] -> [R, L]; of maskable ones they matter."""
        ...


def draw_quotas(keys: Bits, num_maskable: NDArray[np.int64], rate: float) -> NDArray[np.int64]:
    """Tokens to hide in each row: ``rate * num_maskable``, rounded up or down at random.

    The rounding has the right mean, so short rows are not over- or under-masked.

    Args:
        keys: [R].
        num_maskable: [R].

    Returns:
        [R].
    """
    rounding = to_unit(derive_keys(keys.view(np.int64), Purpose.MASK_COUNT))
    return np.floor(num_maskable * rate + rounding).astype(np.int64)


def choose_masked(
    strategy: MaskingStrategy, keys: Bits, maskable: Flags, word_starts: Flags, rate: float
) -> Flags:
    """Which tokens of each row are hidden.

    Args:
        keys: [R], each a hash of (seed, epoch, row).
        maskable: [R, L], False on special tokens, padding and protected tokens.
        word_starts: [R, L], True where a word begins.

    Returns:
        [R, L], True on at most ``quota + strategy.extra_slots`` tokens of a row.
    """
    num_maskable = maskable.sum(axis=1)
    quotas = draw_quotas(keys, num_maskable, rate)
    times = np.where(maskable, strategy.draw_times(keys, maskable, word_starts), LAST)
    if not strategy.whole_groups:
        return _hide_first(times, quotas) & maskable
    turns = to_unit(derive_keys(keys.view(np.int64), Purpose.WORD_TURN)) * num_maskable
    turns = turns.astype(np.int64)
    return _hide_groups(times, quotas, num_maskable, turns, strategy.extra_slots) & maskable


def _hide_first(times: Bits, quotas: NDArray[np.int64]) -> Flags:
    """The `quotas` tokens of each row with the smallest times, exactly: [R, L]."""
    ordered = np.sort(times, axis=1)
    at_quota = ordered[np.arange(len(ordered)), np.maximum(quotas - 1, 0)][:, None]
    before, equal = times < at_quota, times == at_quota
    missing = (quotas - before.sum(axis=1))[:, None]
    return (before | (equal & (np.cumsum(equal, axis=1) <= missing))) & (quotas > 0)[:, None]


def _hide_groups(
    times: Bits,
    quotas: NDArray[np.int64],
    num_maskable: NDArray[np.int64],
    turns: NDArray[np.int64],
    extra: int,
) -> Flags:
    """Whole groups of equal times, about `quotas` tokens of each row: [R, L].

    The groups are laid around a circle of `num_maskable` places in the order of their times, the
    circle is turned at random, and a group is hidden if its first token falls on the first
    `quotas` places. So every group is hidden with the same probability however long it is, and
    the mean count is the quota; filling the quota from the smallest time on would hide long words
    less often, because they overrun it more often.
    """
    places = np.arange(times.shape[1])
    order = np.argsort(times, axis=1, kind="stable")
    ordered = np.take_along_axis(times, order, axis=1)
    is_first = np.ones(times.shape, dtype=bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_last = np.roll(is_first, -1, axis=1)
    first = np.maximum.accumulate(np.where(is_first, places, 0), axis=1)
    ends = np.where(is_last, places + 1, len(places))
    end = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    place = (first + turns[:, None]) % np.maximum(num_maskable, 1)[:, None]
    limit = quotas[:, None]
    is_within = (place < limit) & (place + end - first <= limit + extra)
    hidden = np.empty(times.shape, dtype=bool)
    np.put_along_axis(hidden, order, is_within, axis=1)
    return hidden
