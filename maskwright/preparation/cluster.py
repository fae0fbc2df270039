"""Stages as executors of datatrove. This module imports datatrove, so it is imported late.

Pickled executors name these classes, and every machine that runs a task imports them from here.
"""

import os
from collections.abc import Generator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from maskwright.preparation.process_pool import work_through
from maskwright.preparation.stages import Stage, TaskRunner, list_undone
from maskwright.preparation.work import Work

# It has no types of its own.
PipelineStep: Any = import_module("datatrove.pipeline.base").PipelineStep
LocalPipelineExecutor: Any = import_module("datatrove.executor.local").LocalPipelineExecutor
RayPipelineExecutor: Any = import_module("datatrove.executor.ray").RayPipelineExecutor
SlurmPipelineExecutor: Any = import_module("datatrove.executor.slurm").SlurmPipelineExecutor


class TaskStep(PipelineStep):
    """Does every n-th task of a stage, for one rank of n, and counts them.

    Args:
        folder: of the stages' files.
        cores: processes in each rank.
        apart: the work is done in other processes, however few. Ray's actors wait for ever for a
            process of datatrove's pool that is killed; for one of ours they do not.
    """

    name = "tasks of a preparation"
    type = "maskwright"

    def __init__(self, folder: Path, stage: Stage, cores: int = 1, apart: bool = False) -> None:
        PipelineStep.__init__(self)
        self.folder, self.stage, self.cores, self.apart = folder, stage, cores, apart

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Generator[Any]:
        """Run the tasks; yield no documents, because results are files."""
        work = Work(self.folder)
        try:
            os.chdir(work.plan.directory)
            tasks = list_undone(work, self.stage, rank, world_size)
            runner = partial(TaskRunner, self.folder)
            for _ in work_through(tasks, runner, self.cores, self.stage.name, self.apart):
                self.stat_update("tasks")
        except Exception as error:  # whoever waits for the stage reads it
            work.report_failure(self.stage.name, rank, error)
            raise
        yield from ()


class SlurmExecutor(SlurmPipelineExecutor):
    """Datatrove's, without a further job for statistics.

    That one waits for the array to succeed, so it stays in the queue for ever if it does not.
    """

    def launch_merge_stats(self) -> None:
        """Do nothing."""
