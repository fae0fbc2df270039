"""The stages of a preparation, and the tasks of each.

The tasks of a stage are independent. A finished task is skipped, so a stage may be restarted at any
time, by any number of processes, in any order. They exchange data only through files, so the
prepared folder is the same, byte for byte, whatever runs them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from pathlib import Path

from maskwright.preparation import tasks
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


@dataclass(frozen=True)
class Stage:
    """A stage; `verb`, `unit` and `beginning` are for messages, such as "read 3 of 8 blocks"."""

    name: str
    num_tasks: int
    verb: str
    unit: str
    beginning: str = ""


def list_stages(work: Work, ahead: bool = False) -> Iterator[Stage]:
    """Yield the stages in order: run each before you take the next, whose rounds depend on it.

    With `ahead`, list all stages now, with all rounds of `connect` as one stage.
    """
    plan = work.plan
    blocks, ranges = len(plan.blocks), plan.num_ranges
    yield Stage(READ, blocks, "read", "block", "reading the text")
    if plan.finds_exact:
        yield Stage(EXACT, ranges, "exact duplicates found in", "range")
    if plan.finds_near:
        verb, beginning = "near duplicates found in", "looking for near duplicates"
        yield Stage(NEAR, plan.count_tasks(NEAR), verb, "range", beginning)
        yield from [Stage(CONNECT, 1, "connected", "graph")] if ahead else list_rounds(work)
    yield Stage(VOCABULARY, 1, "made", "tokenizer")
    yield Stage(ENCODE, blocks, "encoded", "block", "encoding the text")
    yield Stage(FINISH, 1, "wrote", "manifest")


def list_rounds(work: Work) -> Iterator[Stage]:
    """Yield rounds of `connect` until the files of the last one show that it changed nothing."""
    for number in count(1):
        if work.last_round() is not None:
            return
        verb = f"round {number}: connected"
        yield Stage(f"{CONNECT}-{number}", work.plan.num_ranges, verb, "range")


_TASKS: dict[str, Callable[[Work, str, int], Facts]] = {
    EXACT: tasks.find_exact,
    NEAR: tasks.find_near,
    CONNECT: tasks.connect_range,
    VOCABULARY: tasks.make_vocabulary,
    FINISH: tasks.finish_folder,
}


def start_runner(folder: Path) -> Callable[[tuple[str, int]], None]:
    """Return a function that runs a task, given as stage name and number, unless it is done.

    Data that a stage loads is kept until a task of another stage arrives.
    """
    work = Work(folder)

    @lru_cache(1)
    def load(stage: str) -> Callable[[int], Facts]:
        (folder / stage).mkdir(exist_ok=True)
        if stage in (READ, ENCODE):
            return (tasks.BlockReader if stage == READ else tasks.BlockEncoder)(work)
        return partial(_TASKS[stage.partition("-")[0]], work, stage)

    def run(task: tuple[str, int]) -> None:
        stage, number = task
        if not work.is_done(stage, number):
            work.report_done(stage, number, load(stage)(number))

    return run


def list_undone(work: Work, stage: Stage, rank: int = 0, ranks: int = 1) -> list[tuple[str, int]]:
    """Return the unfinished tasks of a stage; with several ranks, those of `rank`."""
    numbers = range(rank, stage.num_tasks, ranks)
    return [(stage.name, number) for number in numbers if not work.is_done(stage.name, number)]
