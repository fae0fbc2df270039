"""Dynamic batching: the texts of many requests in one forward pass, off the event loop.

The first text in the queue waits a little for others; texts that arrive during a forward pass form
the next batch.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Generic, ParamSpec, TypeVar

from maskwright.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
P = ParamSpec("P")

MAX_FAILED_PASSES = 3  # in a row; more mean that the model is broken, not the texts


class QueueFullError(Exception):
    """The queue has no room for the texts of a request."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch and of the queue.

    Attributes:
        max_batch: items of a batch.
        max_batch_cost: total cost of a batch; an item that costs more has a batch of its own.
        max_wait_seconds: time that the first item of a batch waits for others.
        max_queued: items in the queue.
    """

    max_batch: int
    max_batch_cost: int
    max_wait_seconds: float
    max_queued: int


class WatchedThreads(ThreadPoolExecutor):
    """Threads that report calls that do not return."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(count, name)
        self._count, self._began = count, dict[int, float]()  # by thread

    @property
    def stuck_seconds(self) -> float:
        """For how long all threads have been busy with their calls; 0 if one is free."""
        began = list(self._began.values())
        return time.monotonic() - max(began) if len(began) == self._count else 0.0

    def submit(
        self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[Result]":
        """Run a call in the next free thread."""

        def run() -> Result:
            self._began[get_ident()] = time.monotonic()
            try:
                return fn(*args, **kwargs)
            finally:
                del self._began[get_ident()]

        return super().submit(run)


class ModelHealth:
    """Counts failed forward passes; the batchers of one model share it."""

    def __init__(self) -> None:
        self._num_failed = 0  # since the last success

    @property
    def is_ok(self) -> bool:
        """Return True if fewer than `MAX_FAILED_PASSES` failed in a row."""
        return self._num_failed < MAX_FAILED_PASSES

    def record(self, results: Sequence[object]) -> None:
        """Count a forward pass: it failed if all results are exceptions.

        A pass of nothing but `InputError` counts neither way: the texts are wrong, not the model.
        """
        errors = [one for one in results if isinstance(one, Exception)]
        if len(errors) < len(results):
            self._num_failed = 0
        elif any(not isinstance(one, InputError) for one in errors):
            self._num_failed += 1


@dataclass(frozen=True)
class _Queued(Generic[Item, Result]):
    item: Item
    cost: int
    future: "asyncio.Future[Result]"


class Batcher(Generic[Item, Result]):
    """Queues items and computes them in batches.

    Args:
        compute: returns the result, or the error, of each item, in order. If it raises for several
            items, it is called for each of them alone, so that one does not fail the others.
        executor: runs `compute`; batchers that share one take turns.
        observe: called with the size of each batch.
        health: counts failed passes; default: one of its own.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result | InputError]],
        limits: BatchLimits,
        executor: Executor,
        observe: Callable[[int], None] = lambda size: None,
        health: ModelHealth | None = None,
    ) -> None:
        self._compute, self._observe, self._executor = compute, observe, executor
        self.limits = limits
        self._health = health or ModelHealth()
        self._queue: deque[_Queued[Item, Result]] = deque()
        self._batch: list[_Queued[Item, Result]] = []  # in the model
        self._has_items = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def num_queued(self) -> int:
        """Items in the queue whose clients still wait."""
        return sum(not one.future.done() for one in self._queue)

    @property
    def is_working(self) -> bool:
        """Return True if the worker runs and recent passes did not fail."""
        runs = self._worker is not None and not self._worker.done()
        return runs and self._health.is_ok

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

    def submit(
        self, items: Sequence[Item], costs: Sequence[int] | None = None
    ) -> Awaitable[list[Result | BaseException]]:
        """Queue all items, or none, and return the result of each, or its exception.

        Raise QueueFullError if there is no room. An item costs 1 unless `costs` are given.
        """
        if len(self._queue) + len(items) > self.limits.max_queued:
            self._queue = deque(one for one in self._queue if not one.future.done())
        if len(self._queue) + len(items) > self.limits.max_queued:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in items]
        for queued in zip(items, costs or [1] * len(items), futures, strict=True):
            self._queue.append(_Queued(*queued))
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
            try:
                results = await loop.run_in_executor(self._executor, self._attempt, items)
            except Exception as error:  # for example of an executor that was shut down
                results = [error] * len(batch)
            self._health.record(results)
            for one, result in zip(batch, results, strict=True):
                if one.future.done():
                    continue
                if isinstance(result, Exception):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)

    def _attempt(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            results = self._compute(items)
            if len(results) != len(items):
                raise RuntimeError(f"{len(results)} results of {len(items)} items")
            return results
        except Exception as error:
            if len(items) == 1:
                return [_as_settable(error)]
        return [self._attempt([item])[0] for item in items]

    async def _collect(self) -> list[_Queued[Item, Result]]:
        """Return the next batch, after `max_wait_seconds` for others to join."""
        while not self._queue:
            self._has_items.clear()
            await self._has_items.wait()
        if len(self._queue) < self.limits.max_batch and self.limits.max_wait_seconds:
            await asyncio.sleep(self.limits.max_wait_seconds)
        batch: list[_Queued[Item, Result]] = []
        cost = 0
        while self._queue and len(batch) < self.limits.max_batch:
            if self._queue[0].future.done():  # its client has disconnected
                self._queue.popleft()
                continue
            cost += self._queue[0].cost
            if batch and cost > self.limits.max_batch_cost:
                break
            batch.append(self._queue.popleft())
        return batch


def _as_settable(error: Exception) -> Exception:
    """Return an exception that a future accepts: any but `StopIteration`, which is wrapped."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("StopIteration was raised")
    wrapped.__cause__ = error
    return wrapped
