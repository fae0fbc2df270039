import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from maskwright.errors import InputError
from maskwright.serving.batcher import MAX_FAILED_PASSES, Batcher, QueueFullError


def run(work: Callable[[Batcher], Coroutine[Any, Any, Any]], **limits: Any) -> Any:
    """Starts a batcher, works with it, and stops it."""
    settings: Any = {
        "max_batch": 8,
        "max_batch_cost": 100,
        "max_wait_seconds": 0.01,
        "max_queued": 100,
        **limits,
    }

    async def main() -> Any:
        batcher = Batcher(**settings)
        batcher.start()
        try:
            return await work(batcher)
        finally:
            await batcher.stop()

    return asyncio.run(main())


class Recorder:
    """A model that returns its items, and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        return items


class Gate:
    """A model that returns its items when it may `go`."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.begun.set()
        self.go.wait(10)
        return items

    async def begin(self, batcher: Batcher) -> "asyncio.Future[Any]":
        """Submit an item, and return its future when it is in the model."""
        future = asyncio.ensure_future(batcher.submit(self, [0]))
        assert await asyncio.to_thread(self.begun.wait, 10)
        return future


def fail_on_zero(items: Sequence[int]) -> Sequence[int]:
    if 0 in items:
        raise ValueError("zero")
    return items


def test_every_item_has_its_own_result_and_many_go_together() -> None:
    model = Recorder()

    async def work(batcher: Batcher) -> list[list[Any]]:
        return await asyncio.gather(*(batcher.submit(model, [n, n + 1]) for n in range(10)))

    assert run(work) == [[n, n + 1] for n in range(10)]
    sizes = list(map(len, model.batches))
    assert (sum(sizes), max(sizes)) == (20, 8)


def test_a_batch_is_of_one_function() -> None:
    models = Recorder(), Recorder()

    async def work(batcher: Batcher) -> list[list[Any]]:
        return await asyncio.gather(*(batcher.submit(models[n % 2], [n]) for n in range(6)))

    assert run(work) == [[n] for n in range(6)]
    assert [model.batches for model in models] == [[[0, 2, 4]], [[1, 3, 5]]]


def test_a_full_queue_refuses_all_of_a_request_or_none() -> None:
    model = Gate()

    async def work(batcher: Batcher) -> None:
        first = await model.begin(batcher)
        assert batcher.busy_seconds > 0
        waiting = asyncio.ensure_future(batcher.submit(model, [1, 2, 3]))
        with pytest.raises(QueueFullError):
            batcher.submit(model, [4, 5])
        assert batcher.num_queued == 3
        model.go.set()
        assert await first == [0]
        assert await waiting == [1, 2, 3]
        assert await batcher.submit(model, [6]) == [6]  # there is room again
        assert batcher.busy_seconds == 0

    run(work, max_queued=4)


def test_nothing_is_computed_for_a_client_that_went_away() -> None:
    model = Recorder()

    async def work(batcher: Batcher) -> None:
        gone = asyncio.ensure_future(batcher.submit(model, [1]))
        await asyncio.sleep(0)
        gone.cancel()
        assert await batcher.submit(model, [2]) == [2]

    run(work, max_wait_seconds=0.05)
    assert model.batches == [[2]]


def test_one_item_does_not_spoil_the_batch_for_others() -> None:
    async def work(batcher: Batcher) -> Any:
        return await asyncio.gather(*(batcher.submit(fail_on_zero, [n]) for n in range(4)))

    [first], *others = run(work)
    assert isinstance(first, ValueError)
    assert others == [[1], [2], [3]]


def test_a_batch_costs_no_more_than_it_may_unless_it_is_one_item() -> None:
    model, costs = Recorder(), [60, 30, 20, 500, 1, 2]

    async def work(batcher: Batcher) -> Any:
        return await batcher.submit(model, costs, costs)

    assert run(work) == costs
    assert model.batches == [[60, 30], [20], [500], [1, 2]]


def test_what_nobody_waits_for_takes_no_room() -> None:
    model = Gate()

    async def work(batcher: Batcher) -> Any:
        first = await model.begin(batcher)
        for _ in range(5):
            left = asyncio.ensure_future(batcher.submit(model, [1, 2]))
            await asyncio.sleep(0)
            left.cancel()
            await asyncio.sleep(0)
        assert batcher.num_queued == 0
        last = asyncio.ensure_future(batcher.submit(model, [3]))
        await asyncio.sleep(0)
        model.go.set()
        return await asyncio.gather(first, last)

    assert run(work, max_queued=3) == [[0], [3]]


def test_results_that_do_not_fit_are_an_error_and_the_worker_goes_on() -> None:
    def lose(items: Sequence[int]) -> Sequence[int]:
        return [item for item in items if item]

    async def work(batcher: Batcher) -> Any:
        [error] = await batcher.submit(lose, [0])
        assert str(error) == "0 results of 1 items"
        assert batcher.is_working
        return await batcher.submit(lose, [1])

    assert run(work) == [1]


def test_what_is_in_the_model_when_it_stops_is_cancelled() -> None:
    model = Gate()

    async def work(batcher: Batcher) -> Any:
        computed = await model.begin(batcher)
        waiting = asyncio.ensure_future(batcher.submit(model, [1]))
        await asyncio.sleep(0)
        await batcher.stop()
        try:
            return await asyncio.wait_for(asyncio.gather(computed, waiting), 1)
        finally:
            model.go.set()

    [[computed], [waiting]] = run(work)
    assert isinstance(computed, asyncio.CancelledError)
    assert isinstance(waiting, asyncio.CancelledError)


def test_passes_that_fail_in_a_row_are_remembered_until_one_does_not() -> None:
    """Texts that cannot be answered say nothing of the model."""

    def refuse(items: Sequence[int]) -> list[int | InputError]:
        return [InputError("no mask")] * len(items)

    async def work(batcher: Batcher) -> None:
        for _ in range(MAX_FAILED_PASSES):
            assert batcher.is_working
            await batcher.submit(refuse, [1])
            await batcher.submit(fail_on_zero, [0, 0])
        await batcher.submit(refuse, [1])
        assert not batcher.is_working
        await batcher.submit(fail_on_zero, [0, 1])  # one of them is answered
        assert batcher.is_working

    run(work)
