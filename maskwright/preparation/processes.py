"""A pool of processes that can be interrupted, and in which a dead process is noticed.

`ProcessPoolExecutor` waits for its processes when it is interrupted, and its semaphores outlive a
killed program; pools of `multiprocessing` wait forever for a process that died.
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

# A pool of processes that can be interrupted (see above).
Line: TypeAlias = "Connection[Any, Any]"
Item = TypeVar("Item")
# Called once in each process; returns the function that is called for each item.
Start: TypeAlias = Callable[[], Callable[[Item], None]]

_MIN_ITEMS = 2  # take less time than starting other processes


def work_through(
    items: Sequence[Item], start: Start[Item], workers: int, place: str, apart: bool = False
) -> Generator[None]:
    """Process all items in any order; yield after each. Closing the generator stops the processes.

    Args:
        start: pickled and sent to each process, which calls it once.
        workers: number of processes; with 1, or few items, this process does the work.
        place: the name of the work, for messages.
        apart: always use other processes.

    Raises:
        ShardError: a process died.
    """
    if items and not apart and (workers == 1 or len(items) <= _MIN_ITEMS):
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
    finally:  # killing is safe: files appear complete or not at all
        for process in crew.values():
            process.kill()
        for process in crew.values():
            process.join()


def _start_process(start: Start[Any]) -> tuple[Line, SpawnProcess]:
    """Start a process that ignores Ctrl-C, which the terminal sends to all; the parent handles it.

    The process does not import the program's main file: a main file that calls `prepare` without
    a ``__main__`` guard would call it again, and wait for the folder that is locked here.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(start, theirs), daemon=True)
    resource_tracker.ensure_running()  # else the first start does it, which unblocks signals
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
    """Process the items that the parent sends, until it closes the connection or dies."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None, "this process was started by `_start_process`"
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    begun = cache(start)  # called with the first item, so that its errors are reported like others
    with suppress(EOFError, OSError):  # the parent has closed the connection
        while True:
            item = line.recv()
            try:
                begun()(item)
                line.send(None)
            except Exception as error:
                error.add_note(traceback.format_exc())  # the traceback itself cannot be sent
                line.send(error)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
