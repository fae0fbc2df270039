"""Texts of many requests in one pass through the model.

The first text waits a little for others; while a pass runs, those that come gather for the next
one. The model runs in one thread of its own, so that the server answers meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFullError(Exception):
    """So many texts wait that no more are taken."""


@dataclass(frozen=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    future: "asyncio.Future[Result]"


class Batcher(Generic[Item, Result]):
    """Collects items and computes them together.

    Args:
        compute: the results of items, in order; what it raises, all of these items raise.
        max_batch: most items of one call.
        max_wait_seconds: how long the first of a batch waits for others.
        max_queued: most items that wait.
        executor: where `compute` runs; batchers that share one take turns.
        observe: told the size of each batch.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        max_batch: int,
        max_wait_seconds: float,
        max_queued: int,
        executor: Executor,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._compute, self._observe = compute, observe
        self._max_batch, self._max_wait = max_batch, max_wait_seconds
        self._queue: asyncio.Queue[_Waiting[Item, Result]] = asyncio.Queue(max_queued)
        self._executor = executor
        self._worker: asyncio.Task[None] | None = None

    @property
    def num_waiting(self) -> int:
        return self._queue.qsize()

    def start(self) -> None:
        """Begins to compute, in the running event loop."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Ends the worker; what still waits is cancelled."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        while not self._queue.empty():
            self._queue.get_nowait().future.cancel()

    def submit(self, items: Sequence[Item]) -> Awaitable[list[Result]]:
        """The results of these items, all or none of which are taken.

        Raises:
            QueueFullError: there is no room for them.
        """
        if self._queue.maxsize - self._queue.qsize() < len(items):
            raise QueueFullError
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(item, loop.create_future()) for item in items]
        for one in waiting:
            self._queue.put_nowait(one)
        return asyncio.gather(*(one.future for one in waiting))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            # A client that went away wants no answer.
            batch = [one for one in batch if not one.future.done()]
            if not batch:
                continue
            self._observe(len(batch))
            items = [one.item for one in batch]
            try:
                results = await loop.run_in_executor(self._executor, self._compute, items)
            except Exception as error:
                for one in batch:
                    if not one.future.done():
                        one.future.set_exception(error)
                continue
            for one, result in zip(batch, results, strict=True):
                if not one.future.done():
                    one.future.set_result(result)

    async def _collect(self) -> list[_Waiting[Item, Result]]:
        """The items of the next batch: what there is after a little while."""
        batch = [await self._queue.get()]
        if self._queue.qsize() + 1 < self._max_batch and self._max_wait:
            await asyncio.sleep(self._max_wait)
        while len(batch) < self._max_batch and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch
