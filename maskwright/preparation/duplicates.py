"""Exact and near duplicates among all blocks, in tasks that each own a range of hashes.

The duplicate with the smallest key (block, index) is kept. Taking the smallest is commutative, so
the result does not depend on the number or order of tasks.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from maskwright.preparation.sorted_runs import Leaders, Part, Records, Values, cut_range
from maskwright.preparation.work import (
    BANDS,
    BEFORE_MENDING,
    BLOCK,
    CONNECT,
    DROPS,
    KEYS,
    NEAR,
    PAIRS,
    READ,
    SIGNATURES,
    Facts,
    Plan,
    Work,
)
from maskwright.selection.near_duplicates import BAND_BITS, NUM_HASHES, connect, to_pairs

_ALL = 1 << 64
_INDEX = np.uint64((1 << 32) - 1)
_PAIRS_AT_ONCE = 1 << 16


def find_exact(work: Work, stage: str, number: int) -> Facts:
    """Write the documents to drop in range `number` of the fingerprints; return how many."""
    dropped, whole = 0, cut_range(0, _ALL, number, work.plan.num_ranges)
    with work.writing(stage, number, DROPS) as writer:
        for keys, by in _list_leaders(work.read_range(READ, KEYS, *whole), "high", "low"):
            goes = _find_copies(work.plan, keys, by)
            writer.add(_make_drops(keys[goes] & ~BEFORE_MENDING, by[goes]))
            dropped += int(goes.sum())
    return {"dropped": dropped}


def _list_leaders(
    parts: Iterable[Part], first: str, second: str
) -> Iterator[tuple[Values, Values]]:
    """Yield the keys of records, and for each the smallest key with the same identity, which is in
    the fields `first` and `second`.
    """
    for part in parts:
        leaders = Leaders()
        for records in part():
            leaders.add(records[first], records[second], records["key"])
        for records in part():
            yield records["key"], leaders.find(records[first], records[second])


def _make_drops(keys: Values, by: Values) -> Records:
    return np.rec.fromarrays([keys, by], dtype=DROPS.dtype)


def _find_copies(plan: Plan, keys: Values, by: Values) -> NDArray[np.bool_]:
    """Return which documents are dropped, given for each the duplicate that is kept.

    The original of a repaired text is only compared with held-out documents.
    """
    num_held_out = np.uint64(plan.num_held_out) << BLOCK
    is_copy = (by < keys) & (by < BEFORE_MENDING)
    goes = is_copy & (by < num_held_out) & (keys >= num_held_out)
    return goes | (is_copy & (keys < BEFORE_MENDING)) if plan.config.corpus.deduplicate else goes


def find_near(work: Work, stage: str, number: int) -> Facts:
    """Write the similar pairs among documents that share a hash in one band and one range; return
    how many pairs were compared and how many are similar.
    """
    compared, similar, ranges = 0, 0, work.plan.num_ranges
    band, part = divmod(number, ranges)
    whole = cut_range(band << BAND_BITS, (band + 1) << BAND_BITS, part, ranges)
    with work.writing(stage, number, PAIRS) as writer:
        for keys, by in _list_leaders(work.read_range(READ, BANDS, *whole), "value", "value"):
            met = np.flatnonzero(by != keys)
            for start in range(0, len(met), _PAIRS_AT_ONCE):
                some = met[start : start + _PAIRS_AT_ONCE]
                one, other = by[some], keys[some]
                share = (_load(work, one) == _load(work, other)).mean(axis=1)
                alike = share >= work.plan.config.select.near_duplicates
                writer.add(to_pairs(one[alike], other[alike]))
                compared, similar = compared + len(some), similar + int(alike.sum())
    return {"compared": compared, "similar": similar}


def _load(work: Work, keys: Values) -> NDArray[np.uint32]:
    loaded = np.empty((len(keys), NUM_HASHES), np.uint32)
    order = np.argsort(keys)
    blocks, starts = np.unique(keys[order] >> BLOCK, return_index=True)
    for block, where in zip(blocks, np.split(order, starts[1:]), strict=True):
        loaded[where] = work.read(READ, int(block), SIGNATURES)[keys[where] & _INDEX]
    return loaded


def connect_range(work: Work, stage: str, number: int) -> Facts:
    """Run one round of `connect` on range `number`: write the pairs for the next round, and the
    documents known so far to be dropped.
    """
    round_number, changed = int(stage.rpartition("-")[2]), False
    before = f"{CONNECT}-{round_number - 1}" if round_number > 1 else NEAR
    whole = cut_range(0, _ALL, number, work.plan.num_ranges)
    with work.writing(stage, number, PAIRS) as pairs, work.writing(stage, number, DROPS) as drops:
        for part in work.read_range(before, PAIRS, *whole):
            if chunks := list(part()):
                joined = connect(np.concatenate(chunks))
                changed |= joined.changed
                pairs.add(joined.pairs)
                drops.add(_make_drops(joined.nodes, joined.least))
    return {"changed": changed}
