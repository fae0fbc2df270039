"""Datatrove executors that run the stages. Imported late, because it imports datatrove.

Pickled executors name these classes, and every machine that runs a task imports this module.
"""

import os
from collections.abc import Generator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from maskwright.preparation.processes import work_through
from maskwright.preparation.stages import Stage, list_rounds, list_undone, start_runner
from maskwright.preparation.work import CONNECT, Work

# datatrove has no type annotations.
PipelineStep: Any = import_module("datatrove.pipeline.base").PipelineStep
LocalPipelineExecutor: Any = import_module("datatrove.executor.local").LocalPipelineExecutor
SlurmPipelineExecutor: Any = import_module("datatrove.executor.slurm").SlurmPipelineExecutor


class TaskStep(PipelineStep):
    """A pipeline step that runs every n-th task of a stage in `cores` processes: one rank of n."""

    name = "tasks of a preparation"
    type = "maskwright"

    def __init__(self, folder: Path, stage: Stage, cores: int = 1) -> None:
        PipelineStep.__init__(self)
        self.folder, self.stage, self.cores = folder, stage, cores

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Generator[Any]:
        """Run the tasks; yield no documents, because results are files."""
        work = Work(self.folder)
        try:
            os.chdir(work.plan.directory)
            runner = partial(start_runner, self.folder)
            for stage in list_rounds(work) if self.stage.name == CONNECT else [self.stage]:
                tasks = list_undone(work, stage, rank, world_size)
                for _ in work_through(tasks, runner, self.cores, stage.name):
                    self.stat_update("tasks")
        except Exception as error:  # the process that waits for the stage reports it
            work.report_failure(self.stage.name, rank, error)
            raise
        yield from ()


def run_rank(folder: Path, stage: Stage, cores: int, logs: str, ranks: int, rank: int) -> None:
    """Run a rank of a stage in this process, with datatrove's logs and completion marker.

    Datatrove's executors for one machine and for Ray wait forever for processes that are killed,
    and leave processes running when they are killed themselves.
    """
    with Path(logs, "log.txt").open("ab") as log:
        os.dup2(log.fileno(), 2)  # datatrove reports errors on stderr
    executor = LocalPipelineExecutor([TaskStep(folder, stage, cores)], ranks, logging_dir=logs)
    executor._run_for_rank(rank, local_rank=1)


class SlurmExecutor(SlurmPipelineExecutor):
    """Datatrove's Slurm executor, without its extra job for statistics.

    That job waits for the array to succeed, so it stays in the queue forever if a task fails.
    """

    def launch_merge_stats(self) -> None:
        """Do nothing."""
