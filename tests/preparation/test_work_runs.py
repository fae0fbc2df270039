"""Files of records, read by ranges of values: nothing is lost, nothing comes twice."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.preparation import work
from maskwright.preparation.work import (
    Records,
    read_all,
    read_between,
    read_parts,
    writing_runs,
)

PAIR = np.dtype([("value", "<u8"), ("number", "<u4")])
TOP = 1 << 64
RUN, CHUNK = 3, 4
# Many are equal, and some are next to the bounds of what a number of 64 bits holds.
VALUES = st.one_of(st.integers(0, 9), st.integers(0, TOP - 1), st.integers(TOP - 3, TOP - 1))
FILES = st.lists(st.lists(VALUES, max_size=8), max_size=9)
BOUNDS = st.tuples(st.one_of(st.just(0), VALUES), st.one_of(st.just(TOP), VALUES)).map(sorted)


@pytest.fixture(scope="module", autouse=True)
def small_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(work, "RUN", RUN)
        monkeypatch.setattr(work, "CHUNK", CHUNK)
        yield


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def write_files(folder: Path, values: list[list[int]], at_once: int) -> tuple[list[Path], Records]:
    """Writes files, a few records at a time; returns them and all records in their order."""
    paths, written = list[Path](), [np.empty(0, PAIR)]
    for number, content in enumerate(values):
        paths.append(folder / str(number))
        written.append(np.array([(value, n) for n, value in enumerate(content)], PAIR))
        with writing_runs(paths[-1], PAIR) as writer:
            for start in range(0, len(content), at_once):
                writer.add(written[-1][start : start + at_once])
    return paths, np.concatenate(written)


def count(chunks: list[Records]) -> list[tuple[int, int]]:
    return sorted(tuple(record) for chunk in chunks for record in chunk.tolist())


@given(FILES, BOUNDS, st.integers(1, 9))
def test_a_range_of_many_files_is_what_a_search_of_all_finds(
    folder: Path, values: list[list[int]], bounds: list[int], at_once: int
) -> None:
    low, high = bounds
    paths, written = write_files(folder, values, at_once)
    chunks = list(read_between(paths, PAIR, low, high))
    expected = [record for record in written.tolist() if low <= record[0] < high]
    assert count(chunks) == sorted(expected)
    assert all(len(chunk) > 0 for chunk in chunks)
    most = max((sum(low <= value < high for value in content) for content in values), default=0)
    assert all(len(chunk) < CHUNK + most for chunk in chunks)
    assert all(len(chunk) >= CHUNK for chunk in chunks[:-1])


@given(st.lists(VALUES, max_size=20), st.integers(1, 9))
def test_each_run_is_sorted_and_equal_values_keep_their_order(
    folder: Path, values: list[int], at_once: int
) -> None:
    [path], _ = write_files(folder, [values], at_once)
    records = read_all(path, PAIR).tolist()
    numbered = [(value, number) for number, value in enumerate(values)]
    runs = [sorted(numbered[start : start + RUN]) for start in range(0, len(values), RUN)]
    assert records == [record for run in runs for record in run]


@given(FILES, BOUNDS)
def test_parts_of_a_range_are_apart_and_make_it_whole(
    folder: Path, values: list[list[int]], bounds: list[int]
) -> None:
    paths, written = write_files(folder, values, 4)
    parts = list(read_parts(paths, PAIR, *bounds))
    read = [count(list(part())) for part in parts]
    assert read == [count(list(part())) for part in parts]  # once more
    expected = [record for record in written.tolist() if bounds[0] <= record[0] < bounds[1]]
    assert sorted(record for part in read for record in part) == sorted(expected)
    distinct = [{value for value, _ in part} for part in read]
    assert sum(map(len, distinct)) == len({value for value, _ in expected})


def test_an_interrupted_file_is_not_there(tmp_path: Path) -> None:
    records = np.zeros(2 * RUN, PAIR)
    with pytest.raises(TypeError), writing_runs(tmp_path / "file", PAIR) as writer:
        writer.add(np.concatenate([records, np.zeros(1, [("other", "<u8"), ("field", "S9")])]))
    assert not list(tmp_path.iterdir())


RECORDS = st.tuples(VALUES, VALUES, VALUES)
