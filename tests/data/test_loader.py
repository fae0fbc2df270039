"""Steps of any rank at any position: micro-batches together have exactly a step's rows."""

import threading
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.config import MaskingConfig
from maskwright.data.loader import EMPTY_ROW, LoadedStep, Prefetcher, StepRequest, slice_rank
from maskwright.data.rows import DataPosition, Row, Rows
from maskwright.distributed.world import World
from tests.helpers import PAD, count_predictions, random_corpus, row_source

REQUEST = StepRequest(row_length=16, num_rows=4, micro_batch_rows=2, mask_rate=0.15)
START = DataPosition(16)


def test_a_step_has_its_micro_batches_and_sums() -> None:
    loaded = row_source(random_corpus()).load(REQUEST, START)
    assert loaded.request == REQUEST
    assert [len(batch.input_ids) for batch in loaded.micro_batches] == [32, 32]
    assert loaded.num_tokens == sum(batch.num_tokens for batch in loaded.micro_batches)
    assert count_predictions(loaded) == sum(
        int((batch.masked_labels != -100).sum()) for batch in loaded.micro_batches
    )


def test_the_prefetched_step_is_the_one_that_would_be_loaded() -> None:
    source = row_source(random_corpus())
    prefetcher = Prefetcher(source.load)
    prefetcher.start(REQUEST, START)
    ahead, direct = prefetcher.take(REQUEST, START), source.load(REQUEST, START)
    prefetcher.close()
    assert torch.equal(ahead.micro_batches[1].input_ids, direct.micro_batches[1].input_ids)


def test_loading_ahead_runs_in_another_thread() -> None:
    threads: list[int] = []

    def load(request: StepRequest, position: DataPosition) -> LoadedStep:
        threads.append(threading.get_ident())
        return LoadedStep(request, (), position, position, 0)

    prefetcher = Prefetcher(load)
    prefetcher.start(REQUEST, START)
    prefetcher.take(REQUEST, START)
    prefetcher.take(REQUEST, START)
    prefetcher.close()
    assert threads[0] != threading.get_ident()
    assert threads[1] == threading.get_ident()


def test_a_step_prefetched_for_another_position_is_thrown_away() -> None:
    prefetcher = Prefetcher(
        lambda request, position: LoadedStep(request, (), position, position, 0)
    )
    prefetcher.start(REQUEST, START)
    elsewhere = DataPosition(16, 5, 7)
    assert prefetcher.take(REQUEST, elsewhere).next_position == elsewhere
    prefetcher.close()


def test_an_error_in_the_thread_reaches_the_loop() -> None:
    def load(request: StepRequest, position: DataPosition) -> LoadedStep:
        raise OSError("disk on fire")

    prefetcher = Prefetcher(load)
    prefetcher.start(REQUEST, START)
    with pytest.raises(OSError, match="disk on fire"):
        prefetcher.take(REQUEST, START)
    prefetcher.close()


def test_steps_for_a_gpu_are_pinned_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    source = row_source(random_corpus())
    plain = source.load(REQUEST, START)
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    prefetcher = Prefetcher(source.load, pins=True)
    prefetcher.start(REQUEST, START)
    step = prefetcher.take(REQUEST, START)
    prefetcher.close()
    for ours, theirs in zip(step.micro_batches, plain.micro_batches, strict=True):
        assert torch.equal(ours.input_ids, theirs.input_ids)
        assert not any(ours.input_ids is tensor for tensor in pinned)
    assert len(pinned) == 2 * 7  # tensors of a batch


LENGTH = 16


@given(num_rows=st.integers(1, 40), size=st.integers(1, 9), most=st.integers(1, 12))
def test_every_row_goes_to_one_rank_and_all_shapes_are_alike(
    num_rows: int, size: int, most: int
) -> None:
    rows = Rows.of(Row(1, number, ((number, 1),)) for number in range(num_rows))
    shares = [slice_rank(rows, most, World(rank, size)) for rank in range(size)]
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
    prefetcher = Prefetcher(source.load)
    loaded = prefetcher.take(StepRequest(LENGTH, num_rows, micro, 0.3), start)
    prefetcher.close()
    return loaded


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
    """Cut into batches of one shape: ranks record their steps together, and send the same."""
    start = DataPosition(LENGTH, epoch, 0)
    whole = load(num_rows, num_rows, World(), start)
    parts = [load(num_rows, micro, World(rank, size), start) for rank in range(size)]
    assert set.union(*map(masked_rows, parts)) == masked_rows(whole)
    assert sum(map(count_predictions, parts)) == count_predictions(whole)
    assert {part.num_tokens for part in parts} == {whole.num_tokens}
    assert {part.next_position for part in parts} == {whole.next_position}
    batches = [batch for part in parts for batch in part.micro_batches]
    assert len({(len(b.input_ids), len(b.context.cu_seqlens)) for b in batches}) == 1


@pytest.mark.parametrize("rank", [0, 3])
def test_an_empty_row_is_padding_without_predictions(rank: int) -> None:
    (batch,) = load(3, 8, World(rank, 4), DataPosition(LENGTH)).micro_batches
    assert (batch.num_predictions == 0) == (rank == 3)
    if rank == 3:
        assert batch.input_ids.tolist() == [PAD] * LENGTH
        assert batch.num_tokens == 0
        assert set(batch.context.segment_ids.tolist()) == {0}
        assert batch.context.cu_seqlens[:2].tolist() == [0, LENGTH]
        assert set(batch.masked_labels.tolist()) == {-100}


FEW = StepRequest(row_length=16, num_rows=4, micro_batch_rows=2, mask_rate=0.15, num_candidates=20)


def test_candidates_are_the_frequent_tokens_and_others_of_each_step() -> None:
    source = row_source(random_corpus())
    counts = source.masker.vocabulary.unigram_counts
    first = source.load(FEW, START)
    second = source.load(FEW, first.next_position)
    ids, offsets = first.micro_batches[0].candidate_ids, first.micro_batches[0].candidate_offsets
    assert ids is not None
    assert offsets is not None
    assert len(set(ids.tolist())) == len(offsets) == 20
    others = sorted(counts, reverse=True)[10:]
    assert min(counts[ids[:10].numpy()]) >= max(others)
    # All candidates together stand for the whole vocabulary.
    assert offsets.double().exp().sum().item() == pytest.approx(len(counts))
    assert offsets[:10].tolist() == [0.0] * 10
    drawn = second.micro_batches[0].candidate_ids
    assert drawn is not None
    assert torch.equal(drawn[:10], ids[:10])
    assert not torch.equal(drawn[10:], ids[10:])


def test_candidates_are_those_of_the_step_on_every_rank() -> None:
    corpus = random_corpus()
    steps = [row_source(corpus, world=World(rank, 2)).load(FEW, START) for rank in range(2)]
    drawn = [batch.candidate_ids for step in steps for batch in step.micro_batches]
    assert len(drawn) == 2
    for ids in drawn:
        assert ids is not None
        assert torch.equal(ids, drawn[0] if drawn[0] is not None else ids)


@pytest.mark.parametrize("count", [0, 64, 1000])
def test_as_many_candidates_as_tokens_are_none(count: int) -> None:
    source = row_source(random_corpus())
    [batch, _] = source.load(replace(FEW, num_candidates=count), START).micro_batches
    assert len(source.masker.vocabulary.unigram_counts) == 64
    assert batch.candidate_ids is batch.candidate_offsets is None
