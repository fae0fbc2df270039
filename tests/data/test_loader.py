import threading

import pytest
import torch

from maskwright.data.loader import LoadedStep, Prefetcher, StepRequest
from maskwright.data.rows import DataPosition
from tests.helpers import random_corpus, row_source

REQUEST = StepRequest(row_length=16, num_rows=4, micro_batch_rows=2, mask_rate=0.15)
START = DataPosition(16)


def test_a_step_has_its_micro_batches_and_sums() -> None:
    loaded = row_source(random_corpus()).load(REQUEST, START)
    assert loaded.request == REQUEST
    assert [len(batch.input_ids) for batch in loaded.micro_batches] == [32, 32]
    assert loaded.num_tokens == sum(batch.num_tokens for batch in loaded.micro_batches)
    assert loaded.num_predictions == sum(
        int((batch.masked_labels != -100).sum()) for batch in loaded.micro_batches
    )


def test_a_loader_built_anew_goes_on_where_the_old_one_stood() -> None:
    corpus = random_corpus()
    once, position = row_source(corpus), START
    for _ in range(30):  # beyond the end of the epoch
        expected = once.load(REQUEST, position)
        actual = row_source(corpus).load(REQUEST, position)
        for a, b in zip(expected.micro_batches, actual.micro_batches, strict=True):
            assert torch.equal(a.input_ids, b.input_ids)
        assert expected.next_position == actual.next_position
        position = expected.next_position
    assert position.epoch >= 1


def test_another_row_length_begins_a_new_epoch() -> None:
    source = row_source(random_corpus())
    position = source.load(REQUEST, START).next_position
    longer = StepRequest(32, 4, 4, 0.15)
    loaded = source.load(longer, position)
    assert loaded.next_position.row_length == 32
    assert loaded.next_position.epoch == position.epoch + 1
    assert loaded.micro_batches[0].context.row_length == 32


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
