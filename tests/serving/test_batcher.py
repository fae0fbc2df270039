import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from maskwright.errors import InputError
from maskwright.serving.batcher import (
    MAX_FAILED_PASSES,
    Batcher,
    BatchLimits,
    ModelHealth,
    QueueFullError,
    WatchedThreads,
)


def run(
    work: Callable[[Batcher[Any, Any]], Coroutine[Any, Any, Any]],
    compute: Callable[[Sequence[Any]], Sequence[Any]],
    **limits: Any,
) -> Any:
    """Starts a batcher, works with it, and stops it."""
    settings: Any = {
        "max_batch": 8,
        "max_batch_cost": 100,
        "max_wait_seconds": 0.01,
        "max_queued": 100,
        **limits,
    }

    async def main() -> Any:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(compute, BatchLimits(**settings), executor)
            batcher.start()
            try:
                return await work(batcher)
            finally:
                await batcher.stop()

    return asyncio.run(main())


def test_every_item_has_its_own_result_and_many_go_together() -> None:
    sizes: list[int] = []

    def double(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        return [2 * item for item in items]

    async def work(batcher: Batcher[int, int]) -> list[list[Any]]:
        return await asyncio.gather(*(batcher.submit([n, n + 1]) for n in range(10)))

    assert run(work, double) == [[2 * n, 2 * n + 2] for n in range(10)]
    assert sum(sizes) == 20
    assert max(sizes) == 8


def test_what_the_model_raises_reaches_those_who_asked_and_nobody_else() -> None:
    def fail_on_zero(items: Sequence[int]) -> Sequence[int]:
        if 0 in items:
            raise ValueError("zero")
        return items

    async def work(batcher: Batcher[int, int]) -> Any:
        [error] = await batcher.submit([0])
        assert isinstance(error, ValueError)
        return await batcher.submit([1])

    assert run(work, fail_on_zero) == [1]


def test_a_full_queue_refuses_all_of_a_request_or_none() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(items: Sequence[int]) -> Sequence[int]:
        begun.set()
        go.wait(10)
        return items

    async def work(batcher: Batcher[int, int]) -> None:
        first = asyncio.ensure_future(batcher.submit([0]))
        assert await asyncio.to_thread(begun.wait, 10)
        waiting = asyncio.ensure_future(batcher.submit([1, 2, 3]))
        with pytest.raises(QueueFullError):
            batcher.submit([4, 5])
        assert batcher.num_queued == 3
        go.set()
        assert await first == [0]
        assert await waiting == [1, 2, 3]
        assert await batcher.submit([6]) == [6]  # there is room again

    run(work, wait, max_queued=4)


def test_nothing_is_computed_for_a_client_that_went_away() -> None:
    seen: list[int] = []

    def note(items: Sequence[int]) -> Sequence[int]:
        seen.extend(items)
        return items

    async def work(batcher: Batcher[int, int]) -> None:
        gone = asyncio.ensure_future(batcher.submit([1]))
        await asyncio.sleep(0)
        gone.cancel()
        assert await batcher.submit([2]) == [2]

    run(work, note, max_wait_seconds=0.05)
    assert seen == [2]


def test_one_item_does_not_spoil_the_batch_for_others() -> None:
    def fail_on_zero(items: Sequence[int]) -> Sequence[int]:
        if 0 in items:
            raise ValueError("zero")
        return items

    async def work(batcher: Batcher[int, int]) -> Any:
        return await asyncio.gather(*(batcher.submit([n]) for n in range(4)))

    [first], *others = run(work, fail_on_zero)
    assert isinstance(first, ValueError)
    assert others == [[1], [2], [3]]


def test_a_batch_costs_no_more_than_it_may_unless_it_is_one_item() -> None:
    batches: list[list[int]] = []

    def remember(items: Sequence[int]) -> Sequence[int]:
        batches.append(list(items))
        return items

    async def work(batcher: Batcher[int, int]) -> Any:
        return await batcher.submit([60, 30, 20, 500, 1, 2], [60, 30, 20, 500, 1, 2])

    assert run(work, remember) == [60, 30, 20, 500, 1, 2]
    assert batches == [[60, 30], [20], [500], [1, 2]]


def test_what_nobody_waits_for_takes_no_room() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(items: Sequence[int]) -> Sequence[int]:
        begun.set()
        go.wait(10)
        return items

    async def work(batcher: Batcher[int, int]) -> Any:
        first = asyncio.ensure_future(batcher.submit([0]))
        assert await asyncio.to_thread(begun.wait, 10)
        for _ in range(5):
            left = asyncio.ensure_future(batcher.submit([1, 2]))
            await asyncio.sleep(0)
            left.cancel()
            await asyncio.sleep(0)
        assert batcher.num_queued == 0
        last = asyncio.ensure_future(batcher.submit([3]))
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, last)

    assert run(work, wait, max_queued=3) == [[0], [3]]


def test_results_that_do_not_fit_are_an_error_and_the_worker_goes_on() -> None:
    def lose(items: Sequence[int]) -> Sequence[int]:
        return [item for item in items if item]

    async def work(batcher: Batcher[int, int]) -> Any:
        [error] = await batcher.submit([0])
        assert str(error) == "0 results of 1 items"
        assert batcher.is_working
        return await batcher.submit([1])

    assert run(work, lose) == [1]


def test_what_is_in_the_model_when_it_stops_is_cancelled() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(items: Sequence[int]) -> Sequence[int]:
        begun.set()
        go.wait(10)
        return items

    async def work(batcher: Batcher[int, int]) -> Any:
        computed = asyncio.ensure_future(batcher.submit([0]))
        assert await asyncio.to_thread(begun.wait, 10)
        waiting = asyncio.ensure_future(batcher.submit([1]))
        await asyncio.sleep(0)
        await batcher.stop()
        try:
            return await asyncio.wait_for(asyncio.gather(computed, waiting), 1)
        finally:
            go.set()

    [[computed], [waiting]] = run(work, wait)
    assert isinstance(computed, asyncio.CancelledError)
    assert isinstance(waiting, asyncio.CancelledError)


def test_the_end_of_an_iterator_is_an_error_and_the_worker_goes_on() -> None:
    def forget_the_end(items: Sequence[int]) -> Sequence[int]:
        return [next(iter(range(item))) for item in items]

    async def work(batcher: Batcher[int, int]) -> Any:
        [error] = await asyncio.wait_for(batcher.submit([0]), 1)  # a future refuses StopIteration
        assert isinstance(error, RuntimeError)
        assert isinstance(error.__cause__, StopIteration)
        return await batcher.submit([1])

    assert run(work, forget_the_end) == [0]


def test_passes_that_fail_in_a_row_are_remembered_until_one_does_not() -> None:
    def fail_on_zero(items: Sequence[int]) -> Sequence[int]:
        if 0 in items:
            raise ValueError("zero")
        return items

    async def work(batcher: Batcher[int, int]) -> None:
        for _ in range(MAX_FAILED_PASSES):
            assert batcher.is_working
            await batcher.submit([0, 0])
        assert not batcher.is_working
        await batcher.submit([0, 1])  # one of them is answered
        assert batcher.is_working

    run(work, fail_on_zero)


def test_what_cannot_be_answered_says_nothing_of_the_model() -> None:
    health, refused, failed = ModelHealth(), InputError("no mask"), ValueError("zero")
    for _ in range(MAX_FAILED_PASSES):
        health.record([refused])
    for _ in range(MAX_FAILED_PASSES - 1):
        health.record([refused, failed])
    assert health.is_ok
    health.record([failed])
    health.record([refused])
    assert not health.is_ok
    health.record([refused, 1])
    assert health.is_ok


def test_they_are_stuck_when_none_is_free() -> None:
    threads, go = WatchedThreads("test", 2), threading.Event()
    barrier = threading.Barrier(3)

    def wait() -> None:
        barrier.wait(10)
        go.wait(10)

    first = threads.submit(wait)
    assert threads.stuck_seconds == 0
    second = threads.submit(wait)
    barrier.wait(10)
    assert threads.stuck_seconds > 0
    go.set()
    for future in (first, second):
        future.result(10)
    assert threads.stuck_seconds == 0
    threads.shutdown()
