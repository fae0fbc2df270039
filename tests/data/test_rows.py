"""Documents cut into segments, and segments planned into rows; test_exactness has the rest."""

from collections import Counter

import numpy as np
import pytest

from maskwright.data import rows as rows_module
from maskwright.data.rows import DataPosition, Row, RowPlanner, SegmentTable
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


@pytest.mark.parametrize("window", [4096], indirect=True)
def test_rows_are_not_sorted_by_length() -> None:
    rows = plan_epoch(make_planner(lengths_of(4, 400), packed=False), 0, [50])
    lengths = [row.segments[0][1] for row in rows]
    assert abs(np.corrcoef(np.arange(len(lengths)), lengths)[0, 1]) < 4 / len(lengths) ** 0.5


def test_an_empty_corpus_is_one_line() -> None:
    with pytest.raises(ShardError, match="holds 0 tokens"):
        make_planner([0, 0])
