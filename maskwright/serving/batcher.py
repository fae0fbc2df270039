"""Dynamic batching: the texts of many requests in one forward pass, off the event loop.

The first text in the queue waits a little for others; texts that arrive during a forward pass form
the next batch.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from maskwright.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
Compute = Callable[[Sequence[Item]], Sequence[Result | InputError]]

MAX_FAILED_PASSES = 3  # in a row; more mean that the model is broken, not the texts


class QueueFullError(Exception):
    """The queue has no room for the texts of a request."""


@dataclass(frozen=True)
class _Queued:
    compute: Compute[Any, Any]
    item: Any
    cost: int
    future: "asyncio.Future[Any]"


class Batcher:
    """Queues items and computes them in batches, in one thread.

    Args:
        max_batch: items of a batch.
        max_batch_cost: total cost of a batch; an item that costs more has a batch of its own.
        max_wait_seconds: time that the first item of a batch waits for others.
        max_queued: items in the queue.
        observe: called with the size of each batch.
    """

    def __init__(
        self,
        *,
        max_batch: int,
        max_batch_cost: int,
        max_wait_seconds: float,
        max_queued: int,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._max_batch, self._max_cost = max_batch, max_batch_cost
        self._wait_seconds, self._max_queued, self._observe = max_wait_seconds, max_queued, observe
        self._thread = ThreadPoolExecutor(1, "model")
        self._queue: deque[_Queued] = deque()
        self._batch: list[_Queued] = []  # in the model
        self._has_items = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._num_failed = 0  # passes since the last success
        self._began: float | None = None  # when the present pass began

    @property
    def num_queued(self) -> int:
        """Items in the queue whose clients still wait."""
        return sum(not one.future.done() for one in self._queue)

    @property
    def is_working(self) -> bool:
        """Return True if the worker runs and recent passes did not fail."""
        runs = self._worker is not None and not self._worker.done()
        return runs and self._num_failed < MAX_FAILED_PASSES

    @property
    def busy_seconds(self) -> float:
        """The duration of the present pass; 0 if there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def forget_failures(self) -> None:
        """Count failed passes anew, because the model is another one."""
        self._num_failed = 0

    def start(self) -> None:
        """Start the worker in the running event loop."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Stop the worker, and cancel the items in the queue and in the model."""
        for one in (*self._batch, *self._queue):
            one.future.cancel()
        self._queue.clear()
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        self._thread.shutdown(wait=False, cancel_futures=True)

    def submit(
        self,
        compute: Compute[Item, Result],
        items: Sequence[Item],
        costs: Sequence[int] | None = None,
    ) -> Awaitable[list[Result | BaseException]]:
        """Queue all items, or none, and return the result of each, or its exception.

        Args:
            compute: returns the result, or the error, of each item, in order. Items of the same
                function form batches. If it raises for several items, it is called for each of
                them alone, so that one does not fail the others.
            costs: of each item; 1 if they are not given.

        Raises:
            QueueFullError: there is no room.
        """
        if len(self._queue) + len(items) > self._max_queued:
            self._queue = deque(one for one in self._queue if not one.future.done())
        if len(self._queue) + len(items) > self._max_queued:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in items]
        for queued in zip(items, costs or [1] * len(items), futures, strict=True):
            self._queue.append(_Queued(compute, *queued))
        self._has_items.set()
        return asyncio.gather(*futures, return_exceptions=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._batch = batch = await self._collect()
            if not batch:
                continue
            self._observe(len(batch))
            items = [one.item for one in batch]
            results = await loop.run_in_executor(self._thread, self._run, batch[0].compute, items)
            self._count_failures(results)
            for one, result in zip(batch, results, strict=True):
                if one.future.done():
                    continue
                if isinstance(result, Exception):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)

    def _run(self, compute: Compute[Any, Any], items: Sequence[Any]) -> Sequence[Any]:
        self._began = time.monotonic()
        try:
            return _attempt(compute, items)
        finally:
            self._began = None

    def _count_failures(self, results: Sequence[Any]) -> None:
        """Count a pass as failed if all its results are exceptions.

        A pass of nothing but `InputError` counts neither way: the texts are wrong, not the model.
        """
        if not all(isinstance(one, Exception) for one in results):
            self._num_failed = 0
        elif not all(isinstance(one, InputError) for one in results):
            self._num_failed += 1

    async def _collect(self) -> list[_Queued]:
        """Return the next batch, after `max_wait_seconds` for others to join."""
        while not self._queue:
            self._has_items.clear()
            await self._has_items.wait()
        if len(self._queue) < self._max_batch and self._wait_seconds:
            await asyncio.sleep(self._wait_seconds)
        waiting = [one for one in self._queue if not one.future.done()]  # clients may disconnect
        batch: list[_Queued] = []
        cost = 0
        for one in waiting:
            if one.compute != waiting[0].compute:
                continue
            cost += one.cost
            if batch and (cost > self._max_cost or len(batch) == self._max_batch):
                break
            batch.append(one)
        taken = set(map(id, batch))
        self._queue = deque(one for one in waiting if id(one) not in taken)
        return batch


def _attempt(compute: Compute[Any, Any], items: Sequence[Any]) -> Sequence[Any]:
    try:
        results = compute(items)
        if len(results) != len(items):
            raise RuntimeError(f"{len(results)} results of {len(items)} items")
        return results
    except Exception as error:
        if len(items) == 1:
            return [error]
    return [_attempt(compute, [item])[0] for item in items]
