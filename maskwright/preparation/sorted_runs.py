"""Files of records in runs, each sorted by the first field of the records, a uint64.

A task that owns a range of values reads that range from many such files by binary search. So a
stage that regroups records writes one file per task, not one per pair of tasks, and a task holds a
bounded number of records, however large the files and ranges are.
"""

import mmap
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maskwright.files import writing_file

RUN = 1 << 16  # records in a run; the last run of a file has fewer
CHUNK = 1 << 20  # records that a task holds at a time: about 80 MB with its results

Records = NDArray[Any]  # of a structured dtype
Values = NDArray[np.uint64]
Part = Callable[[], Iterable[Records]]  # reads its chunks


class RunWriter:
    """Writer of records, which may arrive in any order."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._file, self._waiting, self._num_waiting = file, [np.empty(0, dtype)], 0

    def add(self, records: Records, least: int = RUN) -> None:
        """Add records; write runs while at least `least` records are buffered."""
        self._waiting.append(records)
        self._num_waiting += len(records)
        if self._num_waiting >= least:
            waiting = np.concatenate(self._waiting)
            while len(waiting) >= least:
                run, waiting = waiting[:RUN], waiting[RUN:]
                order = np.argsort(run[field_of(run.dtype)], kind="stable")
                self._file.write(run[order].tobytes())
            self._waiting, self._num_waiting = [waiting], len(waiting)


def field_of(dtype: np.dtype[Any]) -> str:
    """Return the name of the sort field: the first one."""
    assert dtype.names is not None
    return dtype.names[0]


@contextmanager
def writing_runs(path: Path, dtype: np.dtype[Any]) -> Generator[RunWriter]:
    """Yield a writer; the file appears if the block succeeds."""
    with writing_file(path) as file:
        writer = RunWriter(file, dtype)
        yield writer
        writer.add(np.empty(0, dtype), least=1)


def read_all(path: Path, dtype: np.dtype[Any]) -> Records:
    """Return the records of a file, memory-mapped (`np.memmap` takes three times as long)."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def read_between(
    paths: Iterable[Path], dtype: np.dtype[Any], low: int, high: int
) -> Iterator[Records]:
    """Yield the records with values from `low` to below `high`, in chunks of about `CHUNK`."""
    gathered, size = list[Records](), 0
    is_open = high >= 1 << 64  # more than a uint64 holds
    for path in paths:
        records = read_all(path, dtype)
        for start in range(0, len(records), RUN):
            run = records[start : start + RUN]
            values = run[field_of(dtype)]
            begin = int(np.searchsorted(values, np.uint64(low)))
            end = len(run) if is_open else int(np.searchsorted(values, np.uint64(high)))
            gathered.append(np.array(run[begin:end]))
            size += end - begin
        if size >= CHUNK:
            yield np.concatenate(gathered)
            gathered, size = [], 0
    if size:
        yield np.concatenate(gathered)


def read_parts(paths: Sequence[Path], dtype: np.dtype[Any], low: int, high: int) -> Iterator[Part]:
    """Cut a range into parts of about one chunk each; calling a part reads its chunks.

    A range of a single chunk is read once and reused.
    """
    first = list(islice(read_between(paths, dtype, low, high), 2))
    if len(first) < 2:
        yield partial(iter, first)
        return
    first.clear()
    parts = -(-sum(map(len, read_between(paths, dtype, low, high))) // CHUNK)
    for part in range(parts):
        yield partial(read_between, paths, dtype, *cut_range(low, high, part, parts))


def cut_range(low: int, high: int, number: int, of: int) -> tuple[int, int]:
    """Return the bounds of part `number` of the values from `low` to below `high`, cut evenly."""
    width = high - low
    return low + width * number // of, low + width * (number + 1) // of


class Leaders:
    """The smallest rank among the records of each identity, which is a pair of uint64.

    Taking the smallest is commutative, so the result does not depend on the order of chunks.
    """

    def __init__(self) -> None:
        self._first, self._second, self._rank = (np.empty(0, np.uint64) for _ in range(3))

    def add(self, first: Values, second: Values, rank: Values) -> None:
        """Add records: their identity [N], [N] and rank [N]."""
        added = ((self._first, first), (self._second, second), (self._rank, rank))
        first, second, rank = map(np.concatenate, added)
        order = np.lexsort((rank, second, first))
        first, second, rank = first[order], second[order], rank[order]
        new = np.ones(len(first), np.bool_)
        new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._first, self._second, self._rank = first[new], second[new], rank[new]

    def find(self, first: Values, second: Values) -> Values:
        """Return the smallest rank of each of these identities, all of which were added."""
        places = np.searchsorted(self._first, first)
        while (others := self._second[places] != second).any():  # only `first` is equal
            places[others] += 1
        return self._rank[places]
