"""Ranks and micro-batches cut a step in every way there is, and together have exactly its rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.config import MaskingConfig
from maskwright.data.loader import EMPTY_ROW, LoadedStep, StepRequest, cut_share
from maskwright.data.rows import DataPosition, Row, Rows
from maskwright.distributed.world import World
from tests.helpers import PAD, random_corpus, row_source

LENGTH = 16


@given(num_rows=st.integers(1, 40), size=st.integers(1, 9), most=st.integers(1, 12))
def test_every_row_goes_to_one_rank_and_all_shapes_are_alike(
    num_rows: int, size: int, most: int
) -> None:
    rows = Rows.of(Row(1, number, ((number, 1),)) for number in range(num_rows))
    shares = [cut_share(rows, most, World(rank, size)) for rank in range(size)]
    parts = [part for share in shares for part in share]
    assert sorted(row.number for part in parts for row in part if row != EMPTY_ROW) == [
        row.number for row in rows
    ]
    assert len({len(share) for share in shares}) == 1
    assert len({len(part) for part in parts}) == 1
    assert 1 <= len(parts[0]) <= most
    # No more empty rows than it takes to make all shapes alike.
    slots = sum(len(part) for part in parts)
    assert slots - num_rows < size * len(shares[0])


def load(num_rows: int, micro: int, world: World, start: DataPosition) -> LoadedStep:
    source = row_source(random_corpus(), masking=MaskingConfig(rate=0.3), world=world)
    return source.load(StepRequest(LENGTH, num_rows, micro, 0.3), start)


def masked_rows(loaded: LoadedStep) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Input ids and labels of every row that is not empty."""
    rows: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for batch in loaded.micro_batches:
        labels = torch.full_like(batch.input_ids, -100)
        used = batch.masked_labels != -100
        labels[batch.masked_positions[used]] = batch.masked_labels[used]
        shape = (-1, LENGTH)
        pairs = zip(batch.input_ids.view(shape), labels.view(shape), strict=True)
        rows |= {(tuple(ids.tolist()), tuple(hidden.tolist())) for ids, hidden in pairs}
    return {row for row in rows if set(row[0]) != {PAD}}


@given(
    num_rows=st.integers(1, 20),
    size=st.integers(1, 5),
    micro=st.integers(1, 6),
    epoch=st.integers(0, 3),
)
def test_the_global_batch_is_the_same_in_any_world(
    num_rows: int, size: int, micro: int, epoch: int
) -> None:
    start = DataPosition(LENGTH, epoch, 0)
    whole = load(num_rows, num_rows, World(), start)
    parts = [load(num_rows, micro, World(rank, size), start) for rank in range(size)]
    assert set.union(*map(masked_rows, parts)) == masked_rows(whole)
    assert sum(part.num_predictions for part in parts) == whole.num_predictions
    assert {part.num_tokens for part in parts} == {whole.num_tokens}
    assert {part.next_position for part in parts} == {whole.next_position}


@pytest.mark.parametrize("rank", [0, 3])
def test_an_empty_row_is_padding_without_predictions(rank: int) -> None:
    (batch,) = load(3, 8, World(rank, 4), DataPosition(LENGTH)).micro_batches
    assert (batch.num_predictions == 0) == (rank == 3)
    if rank == 3:
        assert batch.input_ids.tolist() == [PAD] * LENGTH
        assert batch.num_tokens == 0
        assert set(batch.segment_ids.tolist()) == {0}
        assert batch.cu_seqlens[:2].tolist() == [0, LENGTH]
        assert set(batch.masked_labels.tolist()) == {-100}
