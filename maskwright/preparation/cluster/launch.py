"""The program that hands a spool to datatrove, and waits until nobody works on it any more.

    python -m maskwright.preparation.cluster.launch FOLDER [TASK]

It is a process of its own, so that datatrove's and Ray's threads, handlers and log lines stay away
from ours. Whoever starts it holds the other end of its standard input: when that is closed, by
intention or because its process is gone, the work ends.
"""

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from maskwright.config import from_mapping
from maskwright.console import tell
from maskwright.files import read_json
from maskwright.preparation.cluster.config import ClusterConfig
from maskwright.preparation.cluster.share import Job, read_job
from maskwright.preparation.cluster.spool import Spool

CLUSTER_NAME = "cluster.json"
NOT_STARTED = 3  # exit status: the last line of the log says why
_MAX_BYTES = 1 << 20
_CONNECT_SECONDS = 10
_LOOK_EVERY_SECONDS = (1, 30)  # the first time, and at most


@dataclass
class Launcher:
    """One way to have a spool worked through."""

    folder: Path
    job: Job
    cluster: ClusterConfig
    task: int = 0  # of datatrove-local, which has a process for each
    stop: Callable[[], object] = field(default=lambda: None)

    def run(self) -> None:
        """Run all tasks; return when they have ended, successfully or not."""
        from maskwright.preparation.cluster.step import WorkStep

        pipeline = [WorkStep(str(self.folder))]
        common = {"tasks": self.job.num_tasks, "logging_dir": str(Spool(self.folder).logs)}
        run = {
            "datatrove-local": self._run_local,
            "datatrove-slurm": self._run_slurm,
            "datatrove-ray": self._run_ray,
        }[self.job.engine]
        run(pipeline, common)

    def _run_local(self, pipeline: Any, common: Any) -> None:
        # One worker does its task in this process. A pool of them would wait for ever for the
        # task of one that was killed.
        only = {"workers": 1, "local_tasks": 1, "local_rank_offset": self.task}
        local = import_module("datatrove.executor.local")
        local.LocalPipelineExecutor(pipeline, **common, **only).run()

    def _run_ray(self, pipeline: Any, common: Any) -> None:
        from maskwright.preparation.cluster.step import RayExecutor

        ray: Any = import_module("ray")
        try:
            check_address(os.environ.get("RAY_ADDRESS", ""))
            ray.init(log_to_driver=False, include_dashboard=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            tell(f"ray: {' '.join(str(error).split())}")
            os._exit(NOT_STARTED)
        executor = RayExecutor(
            pipeline,
            **common,
            cpus_per_task=self.job.cores,
            mem_per_cpu_gb=self.cluster.memory_gigabytes,
            time=self.cluster.seconds,
        )
        executor.run()

    def _run_slurm(self, pipeline: Any, common: Any) -> None:
        from maskwright.preparation.cluster.step import SlurmExecutor

        os.environ.pop("SLURM_ARRAY_TASK_ID", None)  # datatrove would take us for one of its jobs
        name = f"maskwright-{secrets.token_hex(4)}"
        self.stop = lambda: _call("scancel", f"--name={name}")
        programs = shlex.quote(str(Path(sys.executable).parent))
        executor = SlurmExecutor(
            pipeline,
            **common,
            time=self.cluster.time,
            partition=self.cluster.partition or "",
            cpus_per_task=self.job.cores,
            mem_per_cpu_gb=self.cluster.memory_gigabytes,
            job_name=name,
            qos="",
            env_command=f'export PATH={programs}:"$PATH"',
            sbatch_args=self.cluster.sbatch_arguments,
            # Since Slurm 22.05 srun does not take the cores of its job unless it is told.
            srun_args={"cpus-per-task": self.job.cores},
        )
        try:
            executor.run()
        except subprocess.CalledProcessError:  # sbatch has said why
            os._exit(NOT_STARTED)
        pause, most = _LOOK_EVERY_SECONDS
        while executor.get_incomplete_ranks(skip_completed=True) and _is_queued(name):
            time.sleep(pause)
            pause = min(2 * pause, most)


def check_address(address: str) -> None:
    """Raise unless somebody listens at the cluster's address: Ray itself would wait for minutes.

    Raises:
        ConnectionError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", "local", or none
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at RAY_ADDRESS={address} ({error})") from None


def _is_queued(name: str) -> bool:
    """Return True if jobs of this name wait or run, as far as Slurm can be asked."""
    asked = _call("squeue", "--me", "--noheader", f"--name={name}", "--format=%i")
    return bool(asked.returncode or asked.stdout.strip())


def _call(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def _end_with_parent(launcher: Launcher) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    launcher.stop()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    folder, task = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    cluster = from_mapping(ClusterConfig, read_json(folder / CLUSTER_NAME, _MAX_BYTES))
    launcher = Launcher(folder, read_job(folder), cluster, task)
    threading.Thread(target=_end_with_parent, args=(launcher,), daemon=True).start()
    launcher.run()


if __name__ == "__main__":
    main()
