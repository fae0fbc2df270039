"""Documents cut into segments, and segments planned into rows."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data import rows as rows_module
from maskwright.data.rows import DataPosition, Row, RowPlanner, SegmentTable, segments_per_row
from maskwright.errors import ShardError

ROW = 12


@pytest.fixture(autouse=True, params=[8, 4096], ids=["many-windows", "one-window"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(rows_module, "WINDOW_SEGMENTS", request.param)
    return request.param


def make_planner(lengths: list[int], packed: bool = True, extra: int = 2) -> RowPlanner:
    table = SegmentTable(np.array(lengths, dtype=np.int64), ROW - extra)
    return RowPlanner(table, ROW, extra, seed=7, packed=packed)


def lengths_of(seed: int, count: int = 60) -> list[int]:
    return np.random.default_rng(seed).integers(0, 30, count).tolist()


def plan_epoch(planner: RowPlanner, epoch: int, sizes: list[int]) -> list[Row]:
    """All rows of one epoch, asked for in pieces of the given sizes, again and again."""
    rows: list[Row] = []
    position, turn = DataPosition(ROW, epoch), 0
    while True:
        more, position = planner.plan_rows(position, sizes[turn % len(sizes)])
        rows += [row for row in more if row.epoch == epoch]
        turn += 1
        if more.epochs[-1] > epoch:
            return rows


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("sizes", [[1], [3], [7, 2, 5], [64], [1000]])
def test_every_token_appears_once_an_epoch_whatever_the_requests(
    packed: bool, sizes: list[int]
) -> None:
    lengths = lengths_of(1)
    for epoch in (0, 3):
        rows = plan_epoch(make_planner(lengths, packed), epoch, sizes)
        seen = [t for row in rows for s, n in row.segments for t in range(s, s + n)]
        assert sorted(seen) == list(range(sum(lengths)))


@pytest.mark.parametrize("number", [0, 21])
def test_reading_ahead_names_segments_in_the_order_of_rows(number: int) -> None:
    planner, start = make_planner(lengths_of(2)), DataPosition(ROW, 3, number)
    ahead = [begin for part in planner.read_ahead(start) for begin in part.tolist()]
    rows, _ = planner.plan_rows(start, 300)
    planned = [begin for row in rows for begin, _ in row.segments]
    length = min(len(ahead), len(planned))
    assert ahead[:length] == planned[:length]
    begins, _ = planner.segments.locate(np.arange(len(planner.segments)))
    assert set(ahead) == set(begins.tolist())


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 3))
def test_rows_do_not_depend_on_how_they_are_asked_for(sizes: list[int], seed: int) -> None:
    lengths = lengths_of(seed, count=20)
    start = DataPosition(ROW)
    together, end = make_planner(lengths).plan_rows(start, sum(sizes))
    pieces: list[Row] = []
    position = start
    for size in sizes:
        # A planner of its own for every request, as after a resumption.
        more, position = make_planner(lengths).plan_rows(position, size)
        pieces += more
    assert pieces == [*together]
    assert position == end


def test_a_run_over_several_epochs_has_no_gap() -> None:
    lengths = lengths_of(2, count=15)
    rows, _ = make_planner(lengths).plan_rows(DataPosition(ROW), 200)
    tokens = Counter(
        (row.epoch, token) for row in rows for s, n in row.segments for token in range(s, s + n)
    )
    assert max(tokens.values()) == 1
    epochs = [row.epoch for row in rows]
    assert epochs == sorted(epochs)
    per_epoch = Counter(epoch for epoch, _ in tokens)
    assert all(per_epoch[epoch] == sum(lengths) for epoch in range(epochs[-1]))
    assert epochs[-1] >= 2


def test_row_numbers_name_rows() -> None:
    rows, _ = make_planner(lengths_of(1)).plan_rows(DataPosition(ROW), 300)
    assert len({(row.epoch, row.number) for row in rows}) == len(rows)
    for row in [*rows][:50]:
        again, _ = make_planner(lengths_of(1)).plan_rows(
            DataPosition(ROW, row.epoch, row.number), 1
        )
        assert [*again] == [row]


def test_rows_hold_what_fits() -> None:
    for row in plan_epoch(make_planner(lengths_of(3)), 0, [10]):
        assert sum(n + 2 for _, n in row.segments) <= ROW
        assert len(row.segments) <= segments_per_row(ROW)
    unpacked = plan_epoch(make_planner(lengths_of(3), packed=False), 0, [10])
    assert all(len(row.segments) == 1 for row in unpacked)


@pytest.mark.parametrize("window", [4096], indirect=True)
def test_rows_are_not_sorted_by_length() -> None:
    rows = plan_epoch(make_planner(lengths_of(4, 400), packed=False), 0, [50])
    lengths = [row.segments[0][1] for row in rows]
    assert abs(np.corrcoef(np.arange(len(lengths)), lengths)[0, 1]) < 4 / len(lengths) ** 0.5


def test_epochs_and_seeds_differ() -> None:
    planner = make_planner(lengths_of(5))
    first, _ = planner.plan_rows(DataPosition(ROW, 0), 5)
    second, _ = planner.plan_rows(DataPosition(ROW, 1), 5)
    assert [row.segments for row in first] != [row.segments for row in second]
    other = RowPlanner(planner.segments, ROW, 2, seed=8, packed=True)
    assert other.plan_rows(DataPosition(ROW, 0), 5)[0].spans.tolist() != first.spans.tolist()


def test_an_empty_corpus_is_one_line() -> None:
    with pytest.raises(ShardError, match="holds 0 tokens"):
        make_planner([0, 0])


lengths_of_documents = st.lists(st.integers(0, 40), max_size=30)


@given(lengths_of_documents, st.integers(1, 20))
def test_segments_cover_every_token_once_in_order(lengths: list[int], max_tokens: int) -> None:
    table = SegmentTable(np.array(lengths, dtype=np.int64), max_tokens)
    starts, sizes = table.locate(np.arange(len(table)))
    covered = [t for s, n in zip(starts, sizes, strict=True) for t in range(s, s + n)]
    assert covered == list(range(sum(lengths)))
    assert np.all((sizes >= 1) & (sizes <= max_tokens))


@given(lengths_of_documents, st.integers(1, 20))
def test_no_segment_crosses_a_document(lengths: list[int], max_tokens: int) -> None:
    table = SegmentTable(np.array(lengths, dtype=np.int64), max_tokens)
    starts, sizes = table.locate(np.arange(len(table)))
    ends = np.cumsum(lengths)
    first = np.searchsorted(ends, starts, side="right")
    last = np.searchsorted(ends, starts + sizes - 1, side="right")
    assert np.array_equal(first, last)


def test_all_segments_of_a_document_are_full_but_the_last() -> None:
    table = SegmentTable(np.array([7, 0, 3]), 3)
    starts, sizes = table.locate(np.array([3, 0, 2, 1]))
    assert starts.tolist() == [7, 0, 6, 3]
    assert sizes.tolist() == [3, 3, 1, 3]
