"""The stages of a preparation: each a number of tasks that do not need each other.

A task that is done is not done again, so a stage may be begun again at any moment, by any number of
processes, in any order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

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


@dataclass(frozen=True)
class Stage:
    """One stage of a preparation.

    Attributes:
        name: also of its folder.
        verb, unit: for messages: what it does to how many of what.
    """

    name: str
    num_tasks: int
    verb: str
    unit: str


def list_stages(work: Work, ahead: bool = False) -> Iterator[Stage]:
    """Yield the stages in their order, each when those before it are done.

    Args:
        ahead: list all of them now, and all rounds of joining near duplicates as one stage.
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
    """Yield rounds of joining near duplicates, each when the one before is done, until one of them
    changes nothing.
    """
    for number in count(1):
        if work.last_round() is not None:
            return
        verb = f"round {number}: connected"
        yield Stage(f"{CONNECT}-{number}", work.plan.num_ranges, verb, "range")


class TaskRunner:
    """Runs tasks; what a stage loads is kept until a task of another one comes."""

    def __init__(self, folder: Path) -> None:
        self._work, self._stage = Work(folder), ""
        self._run: Callable[[int], Facts] | None = None

    def __call__(self, task: tuple[str, int]) -> None:
        """Run a task of a stage, by its name and number, unless it is done."""
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
    """Return the tasks of a stage that are not done; with several ranks, those of one of them."""
    tasks = range(rank, stage.num_tasks, ranks)
    return [(stage.name, number) for number in tasks if not work.is_done(stage.name, number)]
