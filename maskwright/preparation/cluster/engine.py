"""The engine that hands work out to datatrove: in waves, one written down while one is done."""

import fcntl
import secrets
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.config import to_mapping
from maskwright.files import write_json
from maskwright.formatting import count_noun
from maskwright.preparation.cluster.config import ClusterConfig, EngineName
from maskwright.preparation.cluster.launch import CLUSTER_NAME
from maskwright.preparation.cluster.share import JOB_NAME, Job
from maskwright.preparation.cluster.spool import Spool, holding_lock, lock_path
from maskwright.preparation.cluster.wave import Wave
from maskwright.preparation.folder import Report


@dataclass(frozen=True)
class ClusterEngine:
    """Has items done by tasks of datatrove that share the file system of this process.

    Attributes:
        root: the folder for spools, open to this preparation alone.
        num_tasks: how many tasks share a wave, at most.
    """

    name: EngineName
    cluster: ClusterConfig
    num_tasks: int
    root: Path
    report: Report

    def work_through(
        self, items: Iterable[Any], start: Callable[[], Callable[[Any], Any]], place: str
    ) -> Generator[Any]:
        """Yield the results of all items, in any order; see `team.work_through`.

        Items are read a wave ahead. Closing the generator ends the work at once.

        Raises:
            ShardError: tasks cannot be started, or die again and again.
        """
        self.root.mkdir(mode=0o700, exist_ok=True)
        lock_path(self.root).touch()
        remaining = iter(items)
        running: Wave | None = None
        try:
            while True:
                following = self._write_wave(remaining, start, place)
                if running is not None:
                    yield from running.collect()
                    shutil.rmtree(running.spool.folder)
                running = following
                if running is None:
                    return
                running.begin()
        finally:
            if running is not None:
                running.stop()

    def _write_wave(
        self, items: Iterator[Any], start: Callable[[], Callable[[Any], Any]], place: str
    ) -> Wave | None:
        """Write as many of the next items as make a wave; return None if there are none left."""
        spool = Spool(self.root / f"wave-{secrets.token_hex(8)}")
        num_items = num_bytes = 0
        for item in items:
            if not num_items:
                spool.create(start)
            num_bytes += spool.add(num_items, item)
            num_items += 1
            if num_bytes >= self.cluster.spool_gigabytes * 1e9:
                break
        if not num_items:
            return None
        tasks = min(self.num_tasks, num_items)
        cores = 1 if self.name == "datatrove-local" else self.cluster.cores
        job = Job(self.name, num_items, tasks, cores, str(Path.cwd()))
        write_json(spool.folder / JOB_NAME, asdict(job))
        write_json(spool.folder / CLUSTER_NAME, to_mapping(self.cluster))
        parts, shares = count_noun(num_items, "part"), count_noun(tasks, "task")
        self.report(f"{place}: {parts} of the work for {shares}")
        return Wave(spool, job, place, self.report)


def clear_spools(root: Path, report: Report) -> None:
    """Remove the spools of an earlier preparation, once nobody works on them any more."""
    if not root.is_dir():
        return
    lock_path(root).touch()
    busy = f"{root}: processes of an earlier preparation still work; waiting for them"
    with holding_lock(lock_path(root), fcntl.LOCK_EX, lambda: report(busy)) as locked:
        if not locked:
            report(f"warning: {root} cannot be locked: see that no task of an earlier run is left")
        shutil.rmtree(root)
