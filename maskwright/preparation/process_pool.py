"""A team of processes that work on items one after the other, and end at once when told to.

`ProcessPoolExecutor` waits for its processes when it is interrupted, and its semaphores outlive a
program that is killed.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, islice
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar, cast

from maskwright.errors import ShardError

Line: TypeAlias = "Connection[Any, Any]"
Item = TypeVar("Item")
Result = TypeVar("Result")
# Called once in each process; gives what is then called for each item.
Start: TypeAlias = Callable[[], Callable[[Item], Result]]

_FEW_ITEMS = 2  # are done sooner than other processes are started


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def work_through(
    items: Iterable[Item], start: Start[Item, Result], workers: int, place: str
) -> Generator[Result]:
    """Yield the results of all items, in any order. Closing the generator stops the work at once.

    Args:
        items: read as a stream, at most `workers` + 1 ahead.
        start: sent to each process, so it and what it gives are made of importable functions.
        workers: number of processes; with 1, or few items, this one does the work.
        place: what is worked on, for messages.

    Raises:
        ShardError: a process died.
    """
    remaining = iter(items)
    first = list(islice(remaining, _FEW_ITEMS + 1))
    everything = chain(first, remaining)
    if workers == 1 or len(first) <= _FEW_ITEMS:
        work = start()
        for item in everything:
            yield work(item)
    else:
        del first
        yield from work_in_processes(everything, start, workers, place)


def work_in_processes(
    items: Iterator[Item], start: Start[Item, Result], workers: int, place: str
) -> Generator[Result]:
    """Work as `work_through` does, but never in this process."""
    team: _Team[Item, Result] = _Team(start, place)
    threads = ThreadPoolExecutor(workers, "working")  # each waits for one process
    running: set[Future[Result]] = set()
    try:
        for item in items:
            if team.size < workers:
                team.hire()
            running.add(threads.submit(team.do, [item]))
            del item
            if len(running) > workers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in running)
    finally:
        team.dismiss()
        threads.shutdown(cancel_futures=True)


class _Team(Generic[Item, Result]):
    """Processes with a line of its own for each, so that none can hold up another."""

    def __init__(self, start: Start[Item, Result], place: str) -> None:
        self._start, self._place = start, place
        self._processes: list[SpawnProcess] = []
        self._free: SimpleQueue[Line] = SimpleQueue()

    @property
    def size(self) -> int:
        return len(self._processes)

    def hire(self) -> None:
        """Start another process. Ctrl-C, which the terminal sends to all, is for the parent."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self._start, theirs), daemon=True)
        resource_tracker.ensure_running()  # which the first start does else, and unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with _hiding_main():
                process.start()  # with the same signals blocked
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._processes.append(process)
        self._free.put(ours)

    def do(self, box: list[Item]) -> Result:
        """Let the next free process do the one item in the box.

        The box is emptied, for whoever called holds it, and the memory of a large item with it.

        Raises:
            ShardError: the process died.
        """
        line = self._free.get()
        try:
            line.send(box.pop())
            answer = line.recv()
        except (EOFError, OSError):
            raise ShardError(
                f"{self._place}: a process that worked on it died, perhaps for lack of memory. Run "
                "again to continue, with fewer --workers."
            ) from None
        finally:
            self._free.put(line)
        if isinstance(answer, Exception):
            raise answer
        return cast(Result, answer)

    def dismiss(self) -> None:
        """Stop all processes at once, at any point: files appear complete or not at all."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


@contextmanager
def _hiding_main() -> Generator[None]:
    """Keep processes started within this context from importing the program's main file.

    They need nothing of it, and one that calls us without a guard would do so in each of them,
    and wait for the folder that we have locked.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(start: Start[Any, Any], line: Line) -> None:
    """Do what arrives from the parent, in one thread, until the parent hangs up or is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    begun = cache(start)  # with the first item, so that its errors are told like others
    with suppress(EOFError, OSError):  # nobody is there any more
        while True:
            line.send(attempt(lambda item: begun()(item), line.recv()))


def attempt(work: Callable[[Any], Any], item: Any) -> Any:
    """Return the result of an item, or the error with its traceback as a note."""
    try:
        return work(item)
    except Exception as error:
        error.add_note(traceback.format_exc())  # the traceback itself cannot be sent
        return error


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
