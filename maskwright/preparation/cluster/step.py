"""A task as a step of datatrove's pipelines. This module imports datatrove, so it is imported late.

Pickled executors name these classes, and every machine that runs a task imports them from here.
"""

import os
import threading
import time
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any

from maskwright.preparation.cluster.share import do_share, read_job

_LOOK_EVERY_SECONDS = 0.5

# It has no types of its own.
PipelineStep: Any = import_module("datatrove.pipeline.base").PipelineStep
SlurmPipelineExecutor: Any = import_module("datatrove.executor.slurm").SlurmPipelineExecutor
RayPipelineExecutor: Any = import_module("datatrove.executor.ray").RayPipelineExecutor


class WorkStep(PipelineStep):
    """Does the share of one rank, and counts its items for datatrove's statistics."""

    name = "items of a preparation"
    type = "maskwright"

    def __init__(self, folder: str) -> None:
        PipelineStep.__init__(self)
        self.folder = folder

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Generator[Any]:
        """Run the task; yield no documents, because results go to the spool."""
        folder = Path(self.folder)
        for _ in do_share(folder, read_job(folder), rank):
            self.stat_update("items")
        yield from ()


class SlurmExecutor(SlurmPipelineExecutor):
    """Datatrove's, without a further job for statistics.

    That one waits for the array to succeed, so it stays in the queue for ever if it does not.
    """

    def launch_merge_stats(self) -> None:
        """Do nothing."""


class RayExecutor(RayPipelineExecutor):
    """Datatrove's, whose processes do not outlive the actor that started them.

    Ray gives the work of an actor that died to another one, and both would write.
    """

    def _run_for_rank(self, rank: int, local_rank: int = 0, node_rank: int = -1) -> Any:
        threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
        return RayPipelineExecutor._run_for_rank(self, rank, local_rank, node_rank)


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_SECONDS)
    os._exit(1)
