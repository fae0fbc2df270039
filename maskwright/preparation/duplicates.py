"""Exact and near duplicates among all blocks: tasks over ranges of hashes, no task over all.

Of documents that are alike the one with the smallest key (block, index) stays. That is commutative,
so the result depends neither on the number of tasks nor on their order.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.preparation.sorted_runs import (
    Leaders,
    Records,
    Values,
    cut_range,
    read_all,
    read_parts,
    writing_runs,
)
from maskwright.preparation.work import (
    BANDS,
    BEFORE_MENDING,
    BLOCK,
    CONNECT,
    DROP,
    KEY,
    KEYS,
    NEAR,
    SIGNATURES,
    Facts,
    Plan,
    Work,
)
from maskwright.selection.near_duplicates import (
    BAND,
    BAND_BITS,
    NUM_HASHES,
    PAIR,
    Signatures,
    connect,
    count_bands,
    to_pairs,
)

_ALL = 1 << 64
_INDEX = np.uint64((1 << 32) - 1)
_PAIRS_AT_ONCE = 1 << 16


def find_exact(work: Work, stage: str, number: int) -> Facts:
    """Write which documents of range `number` of fingerprints are dropped; return how many."""
    dropped, whole = 0, cut_range(0, _ALL, number, work.plan.num_ranges)
    with writing_runs(work.path(stage, number, "drops"), DROP) as writer:
        for keys, by in _list_leaders(work.list_read(KEYS), KEY, _by_text, *whole):
            goes = _find_copies(work.plan, keys, by)
            writer.add(_make_drops(keys[goes] & ~BEFORE_MENDING, by[goes]))
            dropped += int(goes.sum())
    return {"dropped": dropped}


def _by_text(keys: Records) -> tuple[Values, Values]:
    return keys["high"], keys["low"]


def _by_band(bands: Records) -> tuple[Values, Values]:
    return bands["value"], np.zeros_like(bands["value"])


def _list_leaders(
    paths: Sequence[Path],
    dtype: np.dtype[Any],
    identify: Callable[[Records], tuple[Values, Values]],
    *bounds: int,
) -> Iterator[tuple[Values, Values]]:
    """Yield the keys of records, and for each the smallest key with the same identity."""
    for part in read_parts(paths, dtype, *bounds):
        leaders = Leaders()
        for records in part():
            leaders.add(*identify(records), records["key"])
        for records in part():
            yield records["key"], leaders.find(*identify(records))


def _make_drops(keys: Values, by: Values) -> Records:
    return np.rec.fromarrays([keys, by], dtype=DROP)


def _find_copies(plan: Plan, keys: Values, by: Values) -> NDArray[np.bool_]:
    """Return which documents are dropped, given the one that stays for each.

    What a text was before it was mended only tells whether it is held out.
    """
    num_held_out = np.uint64(plan.num_held_out) << BLOCK
    is_copy = (by < keys) & (by < BEFORE_MENDING)
    goes = is_copy & (by < num_held_out) & (keys >= num_held_out)
    return goes | (is_copy & (keys < BEFORE_MENDING)) if plan.config.corpus.deduplicate else goes


def find_near(work: Work, stage: str, number: int) -> Facts:
    """Write the pairs of similar documents among those that meet in one band and one range;
    return how many were compared and are similar.
    """
    compared = similar = 0
    signatures, ranges = work.list_read(SIGNATURES), work.plan.num_ranges
    band, part = divmod(number, ranges)
    whole = cut_range(band << BAND_BITS, (band + 1) << BAND_BITS, part, ranges)
    with writing_runs(work.path(stage, number, "pairs"), PAIR) as writer:
        for keys, by in _list_leaders(work.list_read(BANDS), BAND, _by_band, *whole):
            met = np.flatnonzero(by != keys)
            for start in range(0, len(met), _PAIRS_AT_ONCE):
                some = met[start : start + _PAIRS_AT_ONCE]
                one, other = by[some], keys[some]
                share = (_load(signatures, one) == _load(signatures, other)).mean(axis=1)
                alike = share >= work.plan.config.select.near_duplicates
                writer.add(to_pairs(one[alike], other[alike]))
                compared, similar = compared + len(some), similar + int(alike.sum())
    return {"compared": compared, "similar": similar}


def _load(signatures: Sequence[Path], keys: Values) -> Signatures:
    loaded = np.empty((len(keys), NUM_HASHES), np.uint32)
    order = np.argsort(keys)
    blocks, starts = np.unique(keys[order] >> BLOCK, return_index=True)
    for block, where in zip(blocks, np.split(order, starts[1:]), strict=True):
        rows = read_all(signatures[int(block)], np.dtype(np.uint32))
        loaded[where] = rows.reshape(-1, NUM_HASHES)[keys[where] & _INDEX]
    return loaded


def connect_range(work: Work, stage: str, number: int) -> Facts:
    """Write the pairs of the next round of joining pairs to components (`connect`), and the
    documents of range `number` that go as far as is known.
    """
    ranges, before = work.plan.num_ranges, f"{CONNECT}-{int(stage.rpartition('-')[2]) - 1}"
    files, changed = ranges, False
    if before == f"{CONNECT}-0":
        before, files = NEAR, ranges * count_bands(work.plan.config.select.near_duplicates)
    paths = [work.path(before, n, "pairs") for n in range(files)]
    with (
        writing_runs(work.path(stage, number, "pairs"), PAIR) as pairs,
        writing_runs(work.path(stage, number, "drops"), DROP) as drops,
    ):
        for part in read_parts(paths, PAIR, *cut_range(0, _ALL, number, ranges)):
            if chunks := list(part()):
                joined = connect(np.concatenate(chunks))
                changed |= joined.changed
                pairs.add(joined.pairs)
                drops.add(_make_drops(joined.nodes, joined.least))
    return {"changed": changed}
