"""Who runs the tasks of a stage: processes of this machine, or datatrove's executors.

Whatever the engine, the same functions do the same tasks, and nothing passes between them but
files: the prepared folder is the same, byte for byte.
"""

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maskwright.errors import ConfigError, ShardError
from maskwright.files import write_text
from maskwright.preparation.config import ClusterConfig, EngineName, PrepareConfig
from maskwright.preparation.folder import find_work
from maskwright.preparation.stages import (
    Stage,
    TaskRunner,
    count_cores,
    list_stages,
    list_undone,
    work_through,
)
from maskwright.preparation.work import LOGS, Work

_PACKAGES = {"datatrove": "cluster", "ray": "ray"}  # and the extra that brings each
_SLURM = ("sbatch", "squeue", "scancel")
_JOB_NAME = "slurm-job-name"
_CONNECT_SECONDS = 10.0


# Runs the tasks of a stage that are not done; yields now and then how many more are done. Closing
# the iterator stops the work.
Engine = Callable[[Work, Stage], Iterator[int]]


def run_locally(workers: int, work: Work, stage: Stage) -> Iterator[int]:
    """Run tasks by processes of this machine that each take the next one."""
    tasks, start = list_undone(work, stage), partial(TaskRunner, work.folder)
    for _ in work_through(tasks, start, workers, str(work.out)):
        yield 1


def _run_local_ranks(workers: int, work: Work, stage: Stage) -> Iterator[int]:
    """Run every n-th task by each of n ranks of datatrove, which are processes of this machine."""
    run: Any = import_module("maskwright.preparation.cluster").run_rank
    left = len(list_undone(work, stage))
    ranks = min(workers, left)
    start = partial(partial, run, work.folder, stage, 1, _new_logs(work, stage), ranks)
    for _ in work_through(range(ranks), start, ranks, str(work.out), apart=True):
        before, left = left, len(list_undone(work, stage))
        yield before - left


def _run_on_ray(cluster: ClusterConfig, work: Work, stage: Stage) -> Iterator[int]:
    """Run every n-th task by each of n ranks of datatrove, which are tasks of Ray.

    Ray starts them again if process or node die.
    """
    run: Any = import_module("maskwright.preparation.cluster").run_rank
    ray, cores = _connect_to_ray(), cluster.cores
    left = len(list_undone(work, stage))
    ranks = min(cluster.tasks, left)
    memory = cluster.memory_gigabytes * cores << 30
    start = ray.remote(run).options(num_cpus=cores, memory=memory).remote
    task = partial(start, work.folder, stage, cores, _new_logs(work, stage), ranks)
    done, waiting = [None], [task(rank) for rank in range(ranks)]
    try:
        while waiting and done:
            done, waiting = ray.wait(waiting, timeout=cluster.seconds)
            if error := work.find_failure(stage.name):
                raise error
            before, left = left, len(list_undone(work, stage))
            yield before - left
    finally:
        for rank in waiting:
            ray.cancel(rank, force=True)
    if left:
        raise ShardError(
            f"{work.out}: {left} of {stage.num_tasks} tasks of the stage {stage.name} were not "
            f"done, perhaps for lack of memory or time; logs are in {work.folder / LOGS}. Run "
            "again to continue, with other --cluster.* settings."
        )


def _connect_to_ray() -> Any:
    """Connect to the cluster at RAY_ADDRESS, or start one of this machine; return Ray.

    Raises:
        ShardError: nothing answers there.
    """
    ray: Any = import_module("ray")
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS", "")
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdecimal():  # Ray itself would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        ray.init(log_to_driver=False, include_dashboard=False)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ShardError(f"no cluster of Ray at RAY_ADDRESS={address}: {reason}") from None
    return ray


def submit_to_slurm(work: Work, cluster: ClusterConfig) -> None:
    """Submit all stages, each as an array of jobs that waits for the one before.

    Nothing has to run meanwhile. If a job fails, those that wait for it are cancelled.

    Raises:
        ShardError: Slurm refuses them.
    """
    modules: Any = import_module("maskwright.preparation.cluster")
    os.environ.pop("SLURM_ARRAY_TASK_ID", None)  # datatrove would take us for one of its jobs
    name, last = f"maskwright-{secrets.token_hex(4)}", None
    write_text(work.folder / _JOB_NAME, name)
    for stage in list_stages(work, ahead=True):
        if not list_undone(work, stage):
            continue
        executor = modules.SlurmExecutor(
            [modules.TaskStep(work.folder, stage, cluster.cores)],
            tasks=min(cluster.tasks, stage.num_tasks),
            time=cluster.time,
            partition=cluster.partition,
            cpus_per_task=cluster.cores,
            mem_per_cpu_gb=cluster.memory_gigabytes,
            qos="",
            job_name=name,
            env_command=f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
            logging_dir=_new_logs(work, stage),
            depends_job_id=last,
            sbatch_args={"kill-on-invalid-dep": "yes", **cluster.sbatch_arguments},
            with_srun=False,  # a job is one task, and srun takes a second to start it
        )
        try:
            executor.run()
        except (subprocess.CalledProcessError, OSError):  # sbatch has said why
            raise ShardError(f"{work.out}: Slurm refuses the jobs of stage {stage.name}.") from None
        last = executor.job_id


def find_jobs(out: Path) -> list[str]:
    """Return the jobs of Slurm that still work, or wait, for the preparation of `out`.

    Raises:
        ShardError: Slurm does not answer.
    """
    folder = find_work(out)
    if not folder or not (name := folder / _JOB_NAME).exists() or not shutil.which("squeue"):
        return []
    command = ["squeue", "--noheader", "--format=%F", f"--name={name.read_text()}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise ShardError(f"{out} was given to Slurm, which does not answer: {listed.stderr}")
    return sorted(set(listed.stdout.split()), key=int)


def choose_engine(config: PrepareConfig) -> Engine | None:
    """Return the engine that `config` names; None for Slurm, to which stages are submitted.

    Raises:
        ConfigError: a package or a program that it needs is not there.
    """
    workers = config.workers or count_cores()
    if config.engine == "local":
        return partial(run_locally, workers)
    _check_installed(config.engine)
    logs: Any = import_module("datatrove.utils.logging")
    logs.logger.disable("datatrove")  # here; its ranks log to files
    if config.engine == "datatrove-local":
        return partial(_run_local_ranks, workers)
    return partial(_run_on_ray, config.cluster) if config.engine == "datatrove-ray" else None


def _check_installed(engine: EngineName) -> None:
    for package in ("datatrove", "ray") if engine == "datatrove-ray" else ("datatrove",):
        if find_spec(package) is None:
            rule = f"needs the package {package}, which is not installed"
            remedy = f"Run: pip install 'maskwright[{_PACKAGES[package]}]'"
            raise ConfigError("engine", engine, rule, remedy)
    if engine == "datatrove-slurm":
        missing = [name for name in _SLURM if shutil.which(name) is None]
        if missing:
            rule = f"needs {', '.join(missing)}, which cannot be found on PATH"
            raise ConfigError("engine", engine, rule, "Run it where jobs are handed in to Slurm.")


def _new_logs(work: Work, stage: Stage) -> str:
    """Return a folder for datatrove's logs and completion markers, which name ranks of this run."""
    logs = work.folder / LOGS
    number = len(list(logs.glob(f"{stage.name}-*"))) if logs.is_dir() else 0
    folder = logs / f"{stage.name}-{number}"
    folder.mkdir(parents=True)
    return str(folder)
