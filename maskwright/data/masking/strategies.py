"""The common part of all masking strategies.

A strategy gives every token a *time*: a random number that says when it would be hidden if more
and more tokens were. The tokens with the smallest times are hidden until a row's quota is full.
Tokens with equal times (of one word, of one span) go together. So the number of hidden tokens of
a row is exact, it does not depend on other rows, and a strategy is one function.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.draws import Bits, Purpose, derive_keys, to_unit

Flags = NDArray[np.bool_]

LAST = np.uint64(2**64 - 1)  # the time of tokens that are never hidden


class MaskingStrategy(Protocol):
    """What a masking strategy provides."""

    #: Tokens of one time are hidden together or not at all. Otherwise the last group is cut.
    whole_groups: bool

    #: Slots that a row may need beyond its quota, when the group at the quota is longer than it.
    extra_slots: int

    def draw_times(self, keys: Bits, word_starts: Flags) -> Bits:
        """Times of all tokens: [R] keys, [R, L] word starts -> [R, L]."""
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
    quotas = draw_quotas(keys, maskable.sum(axis=1), rate)
    times = np.where(maskable, strategy.draw_times(keys, word_starts), LAST)
    ordered = np.sort(times, axis=1)
    at_quota = ordered[np.arange(len(ordered)), np.maximum(quotas - 1, 0)][:, None]
    before = (times < at_quota) & maskable
    last_group = (times == at_quota) & maskable & (quotas > 0)[:, None]
    missing = quotas - before.sum(axis=1)
    if strategy.whole_groups:
        return before | (last_group & _keeps_whole(strategy, keys, last_group, missing)[:, None])
    return before | (last_group & (np.cumsum(last_group, axis=1) <= missing[:, None]))


def _keeps_whole(
    strategy: MaskingStrategy, keys: Bits, group: Flags, missing: NDArray[np.int64]
) -> Flags:
    """Whether the group at the quota is hidden: [R].

    With probability ``missing / length``, so that the mean count is the quota and long words are
    hidden as often as short ones.
    """
    lengths = group.sum(axis=1)
    unit = to_unit(derive_keys(keys.view(np.int64), Purpose.WORD_AT_QUOTA))
    return (unit * lengths < missing) & (lengths - missing <= strategy.extra_slots)
