"""An executor on daemon threads, which do not keep the process alive."""

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

Result = TypeVar("Result")
P = ParamSpec("P")


class DaemonThreads(Executor):
    """An executor that never joins its threads, and reports calls that do not return.

    `ThreadPoolExecutor` and anyio join their threads when the interpreter ends, so a forward pass
    that hangs would keep the process alive; neither says for how long a call has run.

    Args:
        name: name of the threads.
        count: number of threads.
    """

    def __init__(self, name: str, count: int) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._began: list[float | None] = [None] * count
        for number in range(count):
            Thread(target=self._work, args=(number,), name=name, daemon=True).start()

    @property
    def stuck_seconds(self) -> float:
        """For how long all threads have been busy with their calls; 0 if one is free."""
        began = list(self._began)
        if None in began:
            return 0.0
        return time.monotonic() - max(one for one in began if one is not None)

    def submit(
        self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[Result]":
        """Run a call in the next free thread."""
        future: Future[Result] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End each thread after its current call, without waiting."""
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
