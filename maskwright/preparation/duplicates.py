"""Exact and near duplicates among all blocks: tasks over ranges of hashes, no task over all.

The smallest key (block, index) of the documents that are alike stays. That is commutative, so the
result depends neither on the number of tasks nor on their order.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.preparation.sorted_runs import (
    CHUNK,
    Leaders,
    Records,
    Values,
    cut_range,
    gather,
    read_all,
    read_between,
    writing_runs,
)
from maskwright.preparation.work import (
    BANDS,
    BEFORE_MENDING,
    CONNECT,
    DROP,
    EXACT,
    KEY,
    KEYS,
    NEAR,
    READ,
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

_BLOCK = np.uint64(32)  # bits of a key below its block
_ALL = 1 << 64
_INDEX = np.uint64((1 << 32) - 1)
_PAIRS_AT_ONCE = 1 << 16
_LAST_RANK = np.uint64(1 << 63)  # of what may not stay


def _read(paths: list[Path], dtype: np.dtype[Any], low: int, high: int) -> Iterator[Records]:
    """Yield chunks of records in a range; `key` is added to them as their last field."""
    keyed = np.dtype([*dtype.descr, ("key", "<u8")])

    def add_key(block: int, records: Records) -> Records:
        made = np.empty(len(records), keyed)
        for name in dtype.names or ():
            made[name] = records[name]
        made["key"] = (np.uint64(block) << _BLOCK) | records["index"]
        return made

    return gather(add_key(*each) for each in read_between(paths, dtype, low, high))


def _cut(paths: list[Path], dtype: np.dtype[Any], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Cut a range so that each part holds about a chunk of records."""
    count = sum(len(records) for _, records in read_between(paths, dtype, low, high))
    parts = -(-count // CHUNK)
    return (cut_range(low, high, number, parts) for number in range(parts))


class ExactFinder:
    """Finds copies among the documents whose fingerprints are in one range."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.paths = [work.path(READ, n, KEYS) for n in range(len(work.plan.blocks))]

    def __call__(self, number: int) -> Facts:
        """Write the documents of range `number` that are dropped; return how many."""
        dropped, whole = 0, cut_range(0, _ALL, number, self.work.plan.num_ranges)
        with writing_runs(self.work.path(EXACT, number, "drops"), DROP) as writer:
            for low, high in _cut(self.paths, KEY, *whole):
                leaders = Leaders()
                for chunk in _read(self.paths, KEY, low, high):
                    leaders.add(chunk["high"], chunk["low"], _rank(chunk))
                for chunk in _read(self.paths, KEY, low, high):
                    drops = self._find(chunk, leaders.find(chunk["high"], chunk["low"]))
                    writer.add(drops)
                    dropped += len(drops)
        return {"dropped": dropped}

    def _find(self, chunk: Records, by: Values) -> Records:
        """Return which of a chunk are dropped, given the document that stays for each.

        What a text was before it was mended only tells whether it is held out.
        """
        num_held_out = np.uint64(self.work.plan.num_held_out) << _BLOCK
        is_copy = (by < chunk["key"]) & (by < _LAST_RANK)
        of_held_out = is_copy & (by < num_held_out) & (chunk["key"] >= num_held_out)
        if self.work.plan.config.corpus.deduplicate:
            of_held_out |= is_copy & (chunk["kind"] != BEFORE_MENDING)
        return _make_drops(chunk["key"][of_held_out], by[of_held_out])


def _rank(keys: Records) -> Values:
    return np.where(keys["kind"] == BEFORE_MENDING, keys["key"] | _LAST_RANK, keys["key"])


def _make_drops(keys: Values, by: Values) -> Records:
    drops = np.empty(len(keys), DROP)
    drops["key"], drops["by"] = keys, by
    return drops


class NearFinder:
    """Finds pairs of similar documents: those that meet in one band and one range."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        self.threshold = self.plan.config.select.near_duplicates
        self.paths = [work.path(READ, n, BANDS) for n in range(len(self.plan.blocks))]

    def __call__(self, number: int) -> Facts:
        """Write the pairs of task `number`; return how many were compared and are similar."""
        compared = similar = 0
        band, part = divmod(number, self.plan.num_ranges)
        of_band = cut_range(band << BAND_BITS, (band + 1) << BAND_BITS, part, self.plan.num_ranges)
        with writing_runs(self.work.path(NEAR, number, "pairs"), PAIR) as writer:
            for low, high in _cut(self.paths, BAND, *of_band):
                leaders = Leaders()
                for chunk in _read(self.paths, BAND, low, high):
                    leaders.add(chunk["value"], np.zeros_like(chunk["value"]), chunk["key"])
                for chunk in _read(self.paths, BAND, low, high):
                    by = leaders.find(chunk["value"], np.zeros_like(chunk["value"]))
                    met = by != chunk["key"]
                    one, other = by[met], chunk["key"][met]
                    alike = self._compare(one, other) >= self.threshold
                    writer.add(to_pairs(one[alike], other[alike]))
                    compared, similar = compared + len(one), similar + int(alike.sum())
        return {"compared": compared, "similar": similar}

    def _compare(self, one: Values, other: Values) -> NDArray[np.floating[Any]]:
        """Return which share of the hashes of two signatures each are equal: [N]."""
        parts = [slice(n, n + _PAIRS_AT_ONCE) for n in range(0, len(one), _PAIRS_AT_ONCE)]
        equal = [(self._load(one[p]) == self._load(other[p])).mean(axis=1) for p in parts]
        return np.concatenate([np.empty(0), *equal])

    def _load(self, keys: Values) -> Signatures:
        loaded = np.empty((len(keys), NUM_HASHES), np.uint32)
        order = np.argsort(keys)
        blocks, starts = np.unique(keys[order] >> _BLOCK, return_index=True)
        for block, where in zip(blocks.tolist(), np.split(order, starts[1:]), strict=True):
            path = self.work.path(READ, int(block), SIGNATURES)
            rows = read_all(path, np.dtype(np.uint32)).reshape(-1, NUM_HASHES)
            loaded[where] = rows[keys[where] & _INDEX]
        return loaded


class Connector:
    """One round of joining pairs to components, over the documents of one range; see `connect`."""

    def __init__(self, work: Work, stage: str) -> None:
        self.work, self.stage = work, stage
        ranges, number = work.plan.num_ranges, int(stage.rpartition("-")[2])
        of_near = range(ranges * count_bands(work.plan.config.select.near_duplicates))
        self.paths, self.is_over = [work.path(NEAR, n, "pairs") for n in of_near], False
        if number > 1:
            before = f"{CONNECT}-{number - 1}"
            self.paths = [work.path(before, n, "pairs") for n in range(ranges)]
            self.is_over = not any(work.facts(before, n)["changed"] for n in range(ranges))

    def __call__(self, number: int) -> Facts:
        """Write the pairs of the next round, and the documents that go as far as is known."""
        changed, whole = False, cut_range(0, _ALL, number, self.work.plan.num_ranges)
        if self.is_over:
            return {"changed": False}
        path = partial(self.work.path, self.stage, number)
        with writing_runs(path("pairs"), PAIR) as pairs, writing_runs(path("drops"), DROP) as drops:
            for low, high in _cut(self.paths, PAIR, *whole):
                found = [records for _, records in read_between(self.paths, PAIR, low, high)]
                joined = connect(np.concatenate([np.empty(0, PAIR), *found]))
                changed |= joined.changed
                pairs.add(joined.pairs)
                drops.add(_make_drops(joined.nodes, joined.least))
        return {"changed": changed}
