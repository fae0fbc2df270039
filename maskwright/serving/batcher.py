"""Texts of many requests in one pass through the model.

The first text waits a little for others; while a pass runs, those that come gather for the next
one. The model runs in one thread of its own, so that the server answers meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from maskwright.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_FAILED_PASSES = 3  # in a row; then something is wrong with the model, not with what is asked


class QueueFullError(Exception):
    """So many texts wait that no more are taken."""


@dataclass(frozen=True)
class Limits:
    """How much is computed together, and how much may wait.

    Attributes:
        max_batch: most items of a batch.
        max_batch_cost: most that these cost together; an item that costs more goes alone.
        max_wait_seconds: how long the first of a batch waits for others.
        max_queued: most items that wait.
    """

    max_batch: int
    max_batch_cost: int
    max_wait_seconds: float
    max_queued: int


class Passes:
    """How the latest passes through a model ended; batchers of one model share it."""

    def __init__(self) -> None:
        self._num_failed = 0  # since one gave something

    @property
    def are_good(self) -> bool:
        """Whether fewer than `MAX_FAILED_PASSES` in a row failed."""
        return self._num_failed < MAX_FAILED_PASSES

    def note(self, results: Sequence[object]) -> None:
        """Remembers a pass by its results: a good one has any, a failed one but exceptions.

        Items that cannot be answered (`InputError`) say nothing of the model.
        """
        errors = [one for one in results if isinstance(one, Exception)]
        if len(errors) < len(results):
            self._num_failed = 0
        elif any(not isinstance(one, InputError) for one in errors):
            self._num_failed += 1


@dataclass(frozen=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    cost: int
    future: "asyncio.Future[Result]"


class Batcher(Generic[Item, Result]):
    """Collects items and computes them together.

    Args:
        compute: the results of items, in order. What it raises for several items is asked again of
            each of them, so that none has to answer for another.
        executor: where `compute` runs; batchers that share one take turns.
        observe: told the size of each batch.
        passes: remembers how they end; one of its own if the model is nobody else's.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        limits: Limits,
        executor: Executor,
        observe: Callable[[int], None] = lambda size: None,
        passes: Passes | None = None,
    ) -> None:
        self._compute, self._observe, self._executor = compute, observe, executor
        self.limits = limits
        self._passes = passes or Passes()
        self._waiting: deque[_Waiting[Item, Result]] = deque()
        self._batch: list[_Waiting[Item, Result]] = []  # that is in the model
        self._has_come = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def num_waiting(self) -> int:
        """Items that somebody still waits for."""
        return sum(not one.future.done() for one in self._waiting)

    @property
    def is_working(self) -> bool:
        """Whether what is submitted will be computed, as far as the latest passes tell."""
        runs = self._worker is not None and not self._worker.done()
        return runs and self._passes.are_good

    def start(self) -> None:
        """Begins to compute, in the running event loop."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Ends the worker; what still waits or is in the model is cancelled."""
        for one in (*self._batch, *self._waiting):
            one.future.cancel()
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    def submit(
        self, items: Sequence[Item], costs: Sequence[int] | None = None
    ) -> Awaitable[list[Result | BaseException]]:
        """The results of these items, all or none of which are taken; or what each of them raised.

        Args:
            costs: of each item; none = 1 each.

        Raises:
            QueueFullError: there is no room for them.
        """
        if len(self._waiting) + len(items) > self.limits.max_queued:
            self._waiting = deque(one for one in self._waiting if not one.future.done())
        if len(self._waiting) + len(items) > self.limits.max_queued:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in items]
        for waiting in zip(items, costs or [1] * len(items), futures, strict=True):
            self._waiting.append(_Waiting(*waiting))
        self._has_come.set()
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
            except Exception as error:  # such as an executor that was shut down
                results = [error] * len(batch)
            self._passes.note(results)
            for one, result in zip(batch, results, strict=True):
                if one.future.done():
                    continue
                if isinstance(result, Exception):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)

    def _attempt(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """As many results as items; of an item that cannot be computed, what it raised."""
        try:
            results = self._compute(items)
            if len(results) != len(items):
                raise RuntimeError(f"{len(results)} results of {len(items)} items")
            return results
        except Exception as error:
            if len(items) == 1:
                return [_as_settable(error)]
        return [self._attempt([item])[0] for item in items]

    async def _collect(self) -> list[_Waiting[Item, Result]]:
        """The items of the next batch: what there is after a little while."""
        while not self._waiting:
            self._has_come.clear()
            await self._has_come.wait()
        if len(self._waiting) < self.limits.max_batch and self.limits.max_wait_seconds:
            await asyncio.sleep(self.limits.max_wait_seconds)
        batch: list[_Waiting[Item, Result]] = []
        cost = 0
        while self._waiting and len(batch) < self.limits.max_batch:
            # A client that went away wants no answer.
            if self._waiting[0].future.done():
                self._waiting.popleft()
                continue
            cost += self._waiting[0].cost
            if batch and cost > self.limits.max_batch_cost:
                break
            batch.append(self._waiting.popleft())
        return batch


def _as_settable(error: Exception) -> Exception:
    """An exception that a future takes, which is any but the one that ends generators."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("StopIteration was raised")
    wrapped.__cause__ = error
    return wrapped
