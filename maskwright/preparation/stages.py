"""The stages of a preparation, which consist of independent tasks, and the processes that run them.

A finished task is skipped, so a stage may be restarted at any time, by any number of processes, in
any order. `ProcessPoolExecutor` waits for its processes when it is interrupted, and its semaphores
outlive a killed program; pools of `multiprocessing` wait forever for a process that died. So this
module starts its own processes.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from maskwright.errors import ShardError
from maskwright.preparation.duplicates import connect_range, find_exact, find_near
from maskwright.preparation.encode import BlockEncoder, finish_folder
from maskwright.preparation.read import BlockReader
from maskwright.preparation.vocabulary import make_vocabulary
from maskwright.preparation.work import (
    CONNECT,
    ENCODE,
    EXACT,
    FINISH,
    NEAR,
    READ,
    VOCABULARY,
    Facts,
    Work,
)

Line: TypeAlias = "Connection[Any, Any]"
Item = TypeVar("Item")
# Called once in each process; returns the function that is called for each item.
Start: TypeAlias = Callable[[], Callable[[Item], None]]

_MIN_ITEMS = 2  # take less time than starting other processes


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    threading.Thread(target=_exit_with_parent, daemon=True).start()
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


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True)
class Stage:
    """One stage of a preparation.

    Attributes:
        name: its name, and the name of its folder.
        verb, unit: for messages such as "read 3 of 8 blocks".
    """

    name: str
    num_tasks: int
    verb: str
    unit: str


def list_stages(work: Work, ahead: bool = False) -> Iterator[Stage]:
    """Yield the stages in order, each when the previous ones are done.

    Args:
        ahead: list all stages now, with all rounds of `connect` as one stage.
    """
    plan = work.plan
    blocks, ranges = len(plan.blocks), plan.num_ranges
    yield Stage(READ, blocks, "read", "block")
    if plan.finds_exact:
        yield Stage(EXACT, ranges, "exact duplicates found in", "range")
    if plan.finds_near:
        yield Stage(NEAR, plan.count_tasks(NEAR), "near duplicates found in", "range")
        yield from [Stage(CONNECT, 1, "connected", "graph")] if ahead else list_rounds(work)
    yield Stage(VOCABULARY, 1, "made", "tokenizer")
    yield Stage(ENCODE, blocks, "encoded", "block")
    yield Stage(FINISH, 1, "wrote", "manifest")


def list_rounds(work: Work) -> Iterator[Stage]:
    """Yield rounds of `connect`, each when the previous one is done, until one changes nothing."""
    for number in count(1):
        if work.last_round() is not None:
            return
        verb = f"round {number}: connected"
        yield Stage(f"{CONNECT}-{number}", work.plan.num_ranges, verb, "range")


class TaskRunner:
    """Runner of tasks. Data that a stage loads is kept until a task of another stage arrives."""

    def __init__(self, folder: Path) -> None:
        self._work, self._stage = Work(folder), ""
        self._run: Callable[[int], Facts] | None = None

    def __call__(self, task: tuple[str, int]) -> None:
        """Run a task, given as stage name and number, unless it is done."""
        stage, number = task
        if self._work.is_done(stage, number):
            return
        if stage != self._stage or self._run is None:
            self._run, self._stage = self._begin(stage), stage
        self._work.report_done(stage, number, self._run(number))

    def _begin(self, stage: str) -> Callable[[int], Facts]:
        (self._work.folder / stage).mkdir(exist_ok=True)
        if stage in (READ, ENCODE):
            return (BlockReader if stage == READ else BlockEncoder)(self._work)
        return partial(_TASKS[stage.partition("-")[0]], self._work, stage)


_TASKS: dict[str, Callable[[Work, str, int], Facts]] = {
    EXACT: find_exact,
    NEAR: find_near,
    CONNECT: connect_range,
    VOCABULARY: make_vocabulary,
    FINISH: finish_folder,
}


def list_undone(work: Work, stage: Stage, rank: int = 0, ranks: int = 1) -> list[tuple[str, int]]:
    """Return the unfinished tasks of a stage; with several ranks, those of `rank`."""
    tasks = range(rank, stage.num_tasks, ranks)
    return [(stage.name, number) for number in tasks if not work.is_done(stage.name, number)]
