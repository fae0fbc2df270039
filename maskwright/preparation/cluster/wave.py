"""A spool that is being worked through: who does it, and what has come back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.errors import ShardError
from maskwright.preparation.cluster.launch import NOT_STARTED
from maskwright.preparation.cluster.share import Job
from maskwright.preparation.cluster.spool import Spool
from maskwright.preparation.folder import Report

_LOOK_EVERY_SECONDS = 0.2
_ATTEMPTS_IN_VAIN = 2  # in a row, without a single item done
_STOP_SECONDS = 10  # until Slurm has been told to end its jobs
_MOST_LOG_BYTES = 1 << 16


@dataclass
class Wave:
    """Starts the launchers of a spool, again if items are left when they end.

    Attributes:
        place: what is worked on, for messages.
    """

    spool: Spool
    job: Job
    place: str
    report: Report
    _running: list["subprocess.Popen[bytes]"] = field(
        default_factory=list["subprocess.Popen[bytes]"]
    )

    def begin(self) -> None:
        """Start other processes that work on all unfinished items."""
        tasks: list[list[str]] = [[]]
        if self.job.engine == "datatrove-local":
            tasks = [[str(task)] for task in range(self.job.num_tasks)]
        program = [sys.executable, "-m", "maskwright.preparation.cluster.launch"]
        with self._log.open("ab") as log:
            for task in tasks:
                process = subprocess.Popen(
                    [*program, str(self.spool.folder), *task],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                self._running.append(process)

    def collect(self) -> Generator[Any]:
        """Yield the results of all items, in the order in which they arrive.

        Raises:
            ShardError: nobody can be found to do them, or some are never done.
        """
        missing, in_vain = set(range(self.job.num_items)), 0
        while missing:
            before = len(missing)
            while any(process.poll() is None for process in self._running):
                yield from self._take(missing & self.spool.list_results(), missing)
                time.sleep(_LOOK_EVERY_SECONDS)
            yield from self._take({i for i in missing if self.spool.has_result(i)}, missing)
            statuses = {process.returncode for process in self._running}
            self.stop()
            if not missing:
                return
            if NOT_STARTED in statuses:
                raise ShardError(f"{self.place}: {self.job.engine} cannot begin: {self._reason()}")
            in_vain = 0 if len(missing) < before else in_vain + 1
            left = f"{len(missing)} of {self.job.num_items} parts of the work were not done"
            if in_vain == _ATTEMPTS_IN_VAIN:
                raise ShardError(
                    f"{self.place}: {left}, perhaps for lack of memory or time; the logs are in "
                    f"{self.spool.folder}. Run again to continue, with other --cluster.* settings."
                )
            self.report(f"{self.place}: {left}; they are handed out again")
            self.begin()

    def _take(self, done: set[int], missing: set[int]) -> Generator[Any]:
        for index in sorted(done):
            result = self.spool.read_result(index)
            missing.discard(index)
            if isinstance(result, Exception):
                raise result
            yield result

    def stop(self) -> None:
        """Stop the work at once, at any point: files appear complete or not at all."""
        for process in self._running:
            assert process.stdin is not None
            process.stdin.close()  # it ends, and has Slurm end its jobs
        for process in self._running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            with suppress(ProcessLookupError):  # what it left behind, if it was killed
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()

    @property
    def _log(self) -> Path:
        return self.spool.folder / "log.txt"

    def _reason(self) -> str:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _MOST_LOG_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it does not say")
