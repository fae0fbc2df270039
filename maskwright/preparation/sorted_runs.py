"""Files of records in runs, each sorted by the first field of the records, a uint64.

A task that owns a range of values reads that range of many such files by binary search. So a stage
that regroups records writes one file for each of its tasks, not one for each pair of tasks, and a
task holds a bounded number of records, whatever the sizes of files and ranges.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maskwright.files import replacing_file

RUN = 1 << 16  # records; every run of a file but the last has as many
CHUNK = 1 << 18  # records that a task holds at a time

Records = NDArray[Any]  # of a structured dtype
Values = NDArray[np.uint64]


class RunWriter:
    """Writes records, which come in any order."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._file, self._field = file, field_of(dtype)
        self._waiting: list[Records] = [np.empty(0, dtype)]
        self._num_waiting = 0

    def add(self, records: Records) -> None:
        """Add records of the dtype."""
        self._waiting.append(records)
        self._num_waiting += len(records)
        if self._num_waiting >= RUN:
            self._write(RUN)

    def finish(self) -> None:
        """Write the last run, which may be shorter."""
        self._write(1)

    def _write(self, least: int) -> None:
        waiting = np.concatenate(self._waiting)
        while len(waiting) >= least:
            run, waiting = waiting[:RUN], waiting[RUN:]
            self._file.write(run[np.argsort(run[self._field], kind="stable")].tobytes())
        self._waiting, self._num_waiting = [waiting], len(waiting)


def field_of(dtype: np.dtype[Any]) -> str:
    """Return the name of the field that records are sorted by."""
    assert dtype.names is not None
    return dtype.names[0]


@contextmanager
def writing_runs(path: Path, dtype: np.dtype[Any]) -> Generator[RunWriter]:
    """Yield a writer; the file appears when the block succeeds."""
    with replacing_file(path, shared=True) as temporary, temporary.open("wb") as file:
        writer = RunWriter(file, dtype)
        yield writer
        writer.finish()


def read_all(path: Path, dtype: np.dtype[Any]) -> Records:
    """Return the records of a file, mapped."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def read_between(
    paths: Iterable[Path], dtype: np.dtype[Any], low: int, high: int
) -> Iterator[tuple[int, Records]]:
    """Yield the records with values from `low` to below `high`, with the number of their file."""
    field, bounds = field_of(dtype), (low, high)
    for number, path in enumerate(paths):
        records = read_all(path, dtype)
        for start in range(0, len(records), RUN):
            run = records[start : start + RUN]
            begin, end = _search(run[field], bounds)
            if begin < end:
                yield number, np.array(run[begin:end])


def _search(values: Values, bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = bounds
    begin = int(np.searchsorted(values, np.uint64(low)))
    whole = high >= 1 << 64  # more than a uint64 holds
    return begin, len(values) if whole else int(np.searchsorted(values, np.uint64(high)))


def gather(pieces: Iterable[Records]) -> Iterator[Records]:
    """Yield the same records in chunks of about `CHUNK`."""
    gathered, size = list[Records](), 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield np.concatenate(gathered)
            gathered, size = [], 0
    if gathered:
        yield np.concatenate(gathered)


def cut_range(low: int, high: int, number: int, of: int) -> tuple[int, int]:
    """Return the bounds of part `number` of the values from `low` to below `high`, cut evenly."""
    width = high - low
    return low + width * number // of, low + width * (number + 1) // of


class Leaders:
    """The smallest rank among the records of each identity, which is a pair of uint64.

    Taking the smallest is commutative, so the order in which chunks come changes nothing.
    """

    def __init__(self) -> None:
        self._first, self._second, self._rank = (np.empty(0, np.uint64) for _ in range(3))

    def add(self, first: Values, second: Values, rank: Values) -> None:
        """Add records: their identity [N], [N] and rank [N]."""
        first, second, rank = (
            np.concatenate(pair)
            for pair in ((self._first, first), (self._second, second), (self._rank, rank))
        )
        order = np.lexsort((rank, second, first))
        first, second, rank = first[order], second[order], rank[order]
        new = np.ones(len(first), np.bool_)
        new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._first, self._second, self._rank = first[new], second[new], rank[new]

    def find(self, first: Values, second: Values) -> Values:
        """Return the smallest rank of each of these identities, all of which were added."""
        places = np.searchsorted(self._first, first)
        while (others := self._second[places] != second).any():  # the same in their first half
            places[others] += 1
        return self._rank[places]
