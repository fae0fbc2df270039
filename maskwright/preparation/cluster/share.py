"""The work of one task: its share of the items of a spool."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.errors import ShardError
from maskwright.preparation.cluster.config import EngineName
from maskwright.preparation.cluster.spool import Spool
from maskwright.preparation.process_pool import attempt, work_in_processes, work_through

JOB_NAME = "job.json"


@dataclass(frozen=True)
class Job:
    """What a task has to know, and what starts it.

    Attributes:
        num_tasks: each takes every n-th item.
        cores: processes in each task.
        directory: the current directory of whoever handed the work out; paths may be relative.
    """

    engine: EngineName
    num_items: int
    num_tasks: int
    cores: int
    directory: str


def do_share(folder: Path, job: Job, task: int) -> Iterator[None]:
    """Do every unfinished item of the task; yield after each.

    Raises:
        ShardError: a process died, or this machine does not see the files.
        RuntimeError: an item ended in an error.
    """
    try:
        os.chdir(job.directory)
        indices = [i for i in list_share(job, task) if not Spool(folder).has_result(i)]
    except OSError as error:
        raise ShardError(
            f"{error.filename} is not to be seen from {os.uname().nodename}: engine = {job.engine} "
            "needs a file system that all machines share."
        ) from None
    # In a process of Ray a process that dies would be waited for: one of ours is not.
    in_processes = job.engine == "datatrove-ray" or job.cores > 1
    work = work_in_processes if in_processes else work_through
    for failure in work(iter(indices), partial(ItemWorker, folder), job.cores, str(folder)):
        if failure is not None:
            raise RuntimeError(failure)  # for the log: whoever waits reads the result
        yield


def list_share(job: Job, task: int) -> range:
    """List the items of a task."""
    return range(task, job.num_items, job.num_tasks)


def read_job(folder: Path) -> Job:
    """Read the job of a spool."""
    return Job(**json.loads((folder / JOB_NAME).read_text(encoding="utf-8")))


class ItemWorker:
    """Does items of a spool in the process that calls it, so that texts are nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder)
        self._work: Callable[[Any], Any] | None = None

    def __call__(self, index: int) -> str | None:
        """Write the result of an item; return what is known of its error, if it failed."""
        with self.spool.working_on(index):
            if self.spool.has_result(index):
                return None
            result = attempt(self._do, index)
            self.spool.write_result(index, result)
        return "\n".join(result.__notes__) if isinstance(result, Exception) else None

    def _do(self, index: int) -> Any:
        if self._work is None:
            self._work = self.spool.load_start()()
        return self._work(self.spool.read_item(index))
