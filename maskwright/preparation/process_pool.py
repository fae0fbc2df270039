"""Processes that work on items one after the other, and end at once when told to.

`ProcessPoolExecutor` waits for its processes when it is interrupted, and its semaphores outlive a
program that is killed; pools of `multiprocessing` wait for ever for a process that died.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from maskwright.errors import ShardError

Line: TypeAlias = "Connection[Any, Any]"
Item = TypeVar("Item")
# Called once in each process; returns what is then called for each item.
Start: TypeAlias = Callable[[], Callable[[Item], None]]

_FEW_ITEMS = 2  # are done sooner than other processes are started


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def work_through(
    items: Sequence[Item], start: Start[Item], workers: int, place: str, apart: bool = False
) -> Generator[None]:
    """Work on all items, in any order; yield after each. Closing the generator stops the work.

    Args:
        start: sent to each process, so it and what it returns are made of importable functions.
        workers: number of processes; with 1, or few items, this one does the work.
        place: what is worked on, for messages.
        apart: the work is done in other processes in any case.

    Raises:
        ShardError: a process died.
    """
    if items and not apart and (workers == 1 or len(items) <= _FEW_ITEMS):
        work = start()
        for item in items:
            yield work(item)
        return
    waiting, crew = list(reversed(items)), dict[Line, SpawnProcess]()
    try:
        for _ in items[:workers]:
            line, process = _start_process(start)
            crew[line] = process
            line.send(waiting.pop())
        busy = set(crew)
        while busy:
            for line in wait(list(busy)):
                assert isinstance(line, Connection)
                try:
                    error = line.recv()
                    if error is None and waiting:
                        line.send(waiting.pop())
                    else:
                        busy.remove(line)
                except (EOFError, OSError):
                    raise ShardError(
                        f"{place}: a process that worked on it died, perhaps for lack of memory. "
                        "Run again to continue, with fewer --workers."
                    ) from None
                if error is not None:
                    raise error
                yield
    finally:  # at any point: files appear complete or not at all
        for process in crew.values():
            process.kill()
        for process in crew.values():
            process.join()


def _start_process(start: Start[Any]) -> tuple[Line, SpawnProcess]:
    """Start a process. Ctrl-C, which the terminal sends to all, is for the parent.

    It imports nothing of the program's main file: it needs nothing of that, and one that calls us
    without a guard would do so in each process, and wait for the folder that we have locked.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(start, theirs), daemon=True)
    resource_tracker.ensure_running()  # which the first start does else, and unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()  # with the same signals blocked
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours, process


def _work(start: Start[Any], line: Line) -> None:
    """Do what arrives from the parent, in one thread, until the parent hangs up or is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    begun = cache(start)  # with the first item, so that its errors are reported like others
    with suppress(EOFError, OSError):  # nobody is there any more
        while True:
            item = line.recv()
            try:
                begun()(item)
                line.send(None)
            except Exception as error:
                error.add_note(traceback.format_exc())  # the traceback itself cannot be sent
                line.send(error)


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
