"""Threads that may hang: the process ends without them, and says so while it runs."""

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


class DaemonThreads(Executor):
    """An executor whose threads nobody joins, unlike those of `ThreadPoolExecutor`.

    A call that never returns would keep the process alive after Ctrl-C.

    Args:
        name: of the threads.
        count: how many calls run at once.
    """

    def __init__(self, name: str, count: int) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._began: list[float | None] = [None] * count
        for number in range(count):
            Thread(target=self._work, args=(number,), name=name, daemon=True).start()

    @property
    def stuck_seconds(self) -> float:
        """For how long every thread has been busy with the same call; 0 if one is free."""
        began = list(self._began)
        if None in began:
            return 0.0
        return time.monotonic() - max(one for one in began if one is not None)

    def submit(
        self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[Result]":
        """Run a call in the next thread that is free."""
        future: Future[Result] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End each thread after its call; nothing waits for that."""
        for _ in self._began:
            self._jobs.put(None)

    def _work(self, number: int) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            self._began[number] = time.monotonic()
            try:
                result = call()
            except BaseException as error:
                self._began[number] = None
                future.set_exception(error)
            else:
                self._began[number] = None
                future.set_result(result)
