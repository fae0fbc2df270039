"""Who does the work of a preparation. All that it shares out goes through `Engine.work_through`.

So whatever the engine, the same functions do the same items, and the driver puts together what
comes back: the shards are the same, byte for byte.
"""

import shutil
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from maskwright.errors import ConfigError
from maskwright.preparation.cluster.config import EngineName
from maskwright.preparation.cluster.engine import ClusterEngine
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import TASKS_NAME, Report
from maskwright.preparation.process_pool import Item, Result, Start, count_cores, work_through

_PACKAGES = {"datatrove": "cluster", "ray": "ray"}  # and the extra that brings each


class Engine(Protocol):
    """Something that has items worked on."""

    def work_through(
        self, items: Iterable[Item], start: Start[Item, Result], place: str
    ) -> Generator[Result]:
        """Yield the results of all items, in any order. Closing the generator stops the work at
        once.

        Args:
            items: read as a stream, ahead of the results.
            start: sent to each process, which calls it once, and what it gives for each item;
                both are made of importable functions.
            place: what is worked on, for messages.

        Raises:
            ShardError: a process died.
        """
        ...


@dataclass(frozen=True)
class LocalEngine:
    """The cores of this machine."""

    workers: int

    def work_through(
        self, items: Iterable[Item], start: Start[Item, Result], place: str
    ) -> Generator[Result]:
        """Yield results as `team.work_through` does."""
        return work_through(items, start, self.workers, place)


def choose_engine(config: PrepareConfig, out: Path, report: Report) -> Engine:
    """Return the engine that `config` names, for the folder `out`.

    Raises:
        ConfigError: a package or a program that it needs is not there.
    """
    workers = config.workers or count_cores()
    if config.engine == "local":
        return LocalEngine(workers)
    _check_installed(config.engine)
    tasks = workers if config.engine == "datatrove-local" else config.cluster.tasks
    return ClusterEngine(config.engine, config.cluster, tasks, out.absolute() / TASKS_NAME, report)


def _check_installed(engine: EngineName) -> None:
    for package in ("datatrove", "ray") if engine == "datatrove-ray" else ("datatrove",):
        if find_spec(package) is None:
            rule = f"needs the package {package}, which is not installed"
            remedy = f"Run: pip install 'maskwright[{_PACKAGES[package]}]'"
            raise ConfigError("engine", engine, rule, remedy)
    if engine == "datatrove-slurm":
        missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
        if missing:
            rule = f"needs {', '.join(missing)}, which cannot be found on PATH"
            raise ConfigError("engine", engine, rule, "Run it where jobs are handed in to Slurm.")
