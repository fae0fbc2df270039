"""Exact and near duplicates among all blocks: tasks over ranges of hashes, no task over all.

Of documents that are alike the one with the smallest key (block, index) stays. That is commutative,
so the result depends neither on the number of tasks nor on their order.
"""

from collections.abc import Iterator
from functools import partial
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
    EXACT,
    KEY,
    KEYS,
    NEAR,
    SIGNATURES,
    Facts,
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


class ExactFinder:
    """Finds copies among the documents whose fingerprints are in one range."""

    def __init__(self, work: Work) -> None:
        self.work, self.paths = work, work.list_read(KEYS)

    def __call__(self, number: int) -> Facts:
        """Write the documents of range `number` that are dropped; return how many."""
        dropped, whole = 0, cut_range(0, _ALL, number, self.work.plan.num_ranges)
        with writing_runs(self.work.path(EXACT, number, "drops"), DROP) as writer:
            for part in read_parts(self.paths, KEY, *whole):
                leaders = Leaders()
                for keys in part():
                    leaders.add(keys["high"], keys["low"], keys["key"])
                for keys in part():
                    drops = self._find(keys["key"], leaders.find(keys["high"], keys["low"]))
                    writer.add(drops)
                    dropped += len(drops)
        return {"dropped": dropped}

    def _find(self, keys: Values, by: Values) -> Records:
        """Return which documents are dropped, given the one that stays for each.

        What a text was before it was mended only tells whether it is held out.
        """
        num_held_out = np.uint64(self.work.plan.num_held_out) << BLOCK
        goes = (by < num_held_out) & (keys >= num_held_out)
        if self.work.plan.config.corpus.deduplicate:
            goes |= (by < keys) & (keys < BEFORE_MENDING)
        return _make_drops(keys[goes] & ~BEFORE_MENDING, by[goes])


def _make_drops(keys: Values, by: Values) -> Records:
    drops = np.empty(len(keys), DROP)
    drops["key"], drops["by"] = keys, by
    return drops


class NearFinder:
    """Finds pairs of similar documents: those that meet in one band and one range."""

    def __init__(self, work: Work) -> None:
        self.work, self.ranges = work, work.plan.num_ranges
        self.paths, self.signatures = work.list_read(BANDS), work.list_read(SIGNATURES)

    def __call__(self, number: int) -> Facts:
        """Write the pairs of task `number`; return how many were compared and are similar."""
        compared = similar = 0
        band, part = divmod(number, self.ranges)
        whole = cut_range(band << BAND_BITS, (band + 1) << BAND_BITS, part, self.ranges)
        with writing_runs(self.work.path(NEAR, number, "pairs"), PAIR) as writer:
            for one, other in self._list_met(*whole):
                alike = self._compare(one, other)
                writer.add(to_pairs(one[alike], other[alike]))
                compared, similar = compared + len(one), similar + int(alike.sum())
        return {"compared": compared, "similar": similar}

    def _list_met(self, low: int, high: int) -> Iterator[tuple[Values, Values]]:
        """Yield documents that have a band in common with an earlier one: that one, and they."""
        for part in read_parts(self.paths, BAND, low, high):
            leaders = Leaders()
            for bands in part():
                leaders.add(bands["value"], np.zeros_like(bands["value"]), bands["key"])
            for bands in part():
                by = leaders.find(bands["value"], np.zeros_like(bands["value"]))
                met = np.flatnonzero(by != bands["key"])
                for start in range(0, len(met), _PAIRS_AT_ONCE):
                    some = met[start : start + _PAIRS_AT_ONCE]
                    yield by[some], bands["key"][some]

    def _compare(self, one: Values, other: Values) -> NDArray[np.bool_]:
        """Return whether two documents each are similar, by their whole signatures: [N]."""
        share = (self._load(one) == self._load(other)).mean(axis=1)
        return share >= self.work.plan.config.select.near_duplicates

    def _load(self, keys: Values) -> Signatures:
        loaded = np.empty((len(keys), NUM_HASHES), np.uint32)
        order = np.argsort(keys)
        blocks, starts = np.unique(keys[order] >> BLOCK, return_index=True)
        for block, where in zip(blocks, np.split(order, starts[1:]), strict=True):
            rows = read_all(self.signatures[int(block)], np.dtype(np.uint32))
            loaded[where] = rows.reshape(-1, NUM_HASHES)[keys[where] & _INDEX]
        return loaded


class Connector:
    """One round of joining pairs to components, over the documents of one range; see `connect`."""

    def __init__(self, work: Work, stage: str) -> None:
        self.work, self.stage, self.ranges = work, stage, work.plan.num_ranges
        number = int(stage.rpartition("-")[2])
        before, files = f"{CONNECT}-{number - 1}", self.ranges
        if number == 1:
            before, files = NEAR, files * count_bands(work.plan.config.select.near_duplicates)
        self.paths = [work.path(before, n, "pairs") for n in range(files)]
        facts = [work.facts(before, n) for n in range(files)]
        self.is_over = not any(each.get("changed", True) for each in facts)  # in the round before

    def __call__(self, number: int) -> Facts:
        """Write the pairs of the next round, and the documents that go as far as is known."""
        changed, whole = False, cut_range(0, _ALL, number, self.ranges)
        if self.is_over:
            return {"changed": False}
        path: Any = partial(self.work.path, self.stage, number)
        with writing_runs(path("pairs"), PAIR) as pairs, writing_runs(path("drops"), DROP) as drops:
            for part in read_parts(self.paths, PAIR, *whole):
                if chunks := list(part()):
                    joined = connect(np.concatenate(chunks))
                    changed |= joined.changed
                    pairs.add(joined.pairs)
                    drops.add(_make_drops(joined.nodes, joined.least))
        return {"changed": changed}
