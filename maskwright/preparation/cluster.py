"""Stages as executors of datatrove. This module imports datatrove, so it is imported late.

Pickled executors name these classes, and every machine that runs a task imports them from here.
"""

import os
from collections.abc import Generator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from maskwright.preparation.stages import Stage, TaskRunner, list_rounds, list_undone, work_through
from maskwright.preparation.work import CONNECT, Work

# It has no types of its own.
PipelineStep: Any = import_module("datatrove.pipeline.base").PipelineStep
LocalPipelineExecutor: Any = import_module("datatrove.executor.local").LocalPipelineExecutor
SlurmPipelineExecutor: Any = import_module("datatrove.executor.slurm").SlurmPipelineExecutor


class TaskStep(PipelineStep):
    """Does every n-th task of a stage, for one rank of n, and counts them.

    Args:
        folder: of the stages' files.
        cores: processes in each rank.
    """

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
            runner = partial(TaskRunner, self.folder)
            for stage in list_rounds(work) if self.stage.name == CONNECT else [self.stage]:
                tasks = list_undone(work, stage, rank, world_size)
                for _ in work_through(tasks, runner, self.cores, stage.name):
                    self.stat_update("tasks")
        except Exception as error:  # whoever waits for the stage reads it
            work.report_failure(self.stage.name, rank, error)
            raise
        yield from ()


def run_rank(folder: Path, stage: Stage, cores: int, logs: str, ranks: int, rank: int) -> None:
    """Run a rank of a stage in this process, with datatrove's logs and completion marker.

    Its executors for one machine and for Ray wait for ever for processes that are killed, and when
    they are killed themselves, others stay behind.
    """
    with Path(logs, "log.txt").open("ab") as log:
        os.dup2(log.fileno(), 2)  # where datatrove reports errors
    executor = LocalPipelineExecutor([TaskStep(folder, stage, cores)], ranks, logging_dir=logs)
    executor._run_for_rank(rank, local_rank=1)


class SlurmExecutor(SlurmPipelineExecutor):
    """Datatrove's, without a further job for statistics.

    That one waits for the array to succeed, so it stays in the queue for ever if it does not.
    """

    def launch_merge_stats(self) -> None:
        """Do nothing."""
