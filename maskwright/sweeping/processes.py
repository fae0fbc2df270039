"""Processes of a sweep: one, or several at once, which stop when the sweep is stopped."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from maskwright.train.signals import StopRequest

STOPPED = {code for n in (signal.SIGINT, signal.SIGTERM) for code in (-n, 128 + n)}
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """A command whose output is appended to `log`; `environment` is added to ours."""

    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def run_process(command: Sequence[str], log: Path) -> tuple[int, signal.Signals | None]:
    """Run a command, its output appended to `log`; return its exit code and what stopped us.

    When this process is asked to stop, it waits for the command, which may save a checkpoint.
    SIGTERM is passed on; Ctrl-C reaches the whole process group by itself.
    """
    jobs, codes = [Job(command, log)], list[int]()
    stopped_by = run_jobs(
        lambda place: jobs.pop() if jobs else None,
        lambda: 1,
        lambda job, code: codes.append(code),
    )
    return codes[0], stopped_by


def run_jobs(
    next_job: Callable[[int], Job | None],
    count_places: Callable[[], int],
    on_end: Callable[[Job, int], object],
) -> signal.Signals | None:
    """Run jobs, several at once, until there are no more; return what stopped us.

    Args:
        next_job: returns the next job for the place of a number, or None if there is none now;
            asked again when one has ended, because it may depend on that.
        count_places: returns how many jobs may run at once now.
        on_end: is called with each job that ended, and its exit code.
    """
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
    # Ctrl-C is passed on, too, if it came before the command started.
    to_pass_on: dict[int, set[signal.Signals]] = {}
    with StopRequest() as stop, ExitStack() as processes:
        while True:
            for place in range(count_places()) if stop.signal is None else ():
                if place not in running and (job := next_job(place)) is not None:
                    running[place] = job, processes.enter_context(_start(job))
                    to_pass_on[place] = {signal.SIGINT, signal.SIGTERM}
            if not running:
                return stop.signal
            for place, (job, process) in [*running.items()]:
                if process.poll() is not None:
                    del running[place]
                    on_end(job, process.returncode)
                    continue
                if stop.signal in to_pass_on[place]:
                    process.terminate()
                    to_pass_on[place].clear()
                to_pass_on[place].discard(signal.SIGINT)
            for _, process in [*running.values()][:1]:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)


def _start(job: Job) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **job.environment}
    with job.log.open("ab") as file:
        return subprocess.Popen(job.command, stdout=file, stderr=subprocess.STDOUT, env=environment)
