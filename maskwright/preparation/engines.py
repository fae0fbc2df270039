"""The engines that run the stages: processes on this machine, or datatrove's executors.

Every engine runs the same task functions (`stages`).
"""

import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from maskwright.errors import ConfigError, ShardError
from maskwright.extras import check_extra
from maskwright.files import write_text
from maskwright.preparation.config import ClusterConfig, PrepareConfig
from maskwright.preparation.folder import find_work
from maskwright.preparation.processes import count_cores, work_through
from maskwright.preparation.stages import Stage, list_stages, list_undone, start_runner
from maskwright.preparation.work import (
    LOGS,
    Work,
)

# Runs the unfinished tasks of a stage and yields, from time to time, how many more are done.
# Closing the iterator stops the tasks.
Engine = Callable[[Work, Stage], Iterator[int]]


_SLURM = ("sbatch", "squeue", "scancel")
_JOB_NAME = "slurm-job-name"


def run_locally(workers: int, work: Work, stage: Stage) -> Iterator[int]:
    """Run tasks in processes on this machine; a free process takes the next task."""
    start = partial(start_runner, work.folder)
    for _ in work_through(list_undone(work, stage), start, workers, str(work.out)):
        yield 1


def _run_local_ranks(workers: int, work: Work, stage: Stage) -> Iterator[int]:
    """Run tasks in n datatrove ranks, which are processes on this machine; each runs every n-th."""
    run: Any = import_module("maskwright.preparation.cluster").run_rank
    left = len(list_undone(work, stage))
    ranks = min(workers, left)
    start = partial(partial, run, work.folder, stage, 1, _new_logs(work, stage), ranks)
    for _ in work_through(range(ranks), start, ranks, str(work.out), apart=True):
        before, left = left, len(list_undone(work, stage))
        yield before - left


def _run_on_ray(cluster: ClusterConfig, work: Work, stage: Stage) -> Iterator[int]:
    """Run tasks in n datatrove ranks, which are Ray tasks; Ray restarts one that dies."""
    run: Any = import_module("maskwright.preparation.cluster").run_rank
    ray: Any = import_module("ray")
    try:  # connect to the cluster at RAY_ADDRESS, or start one on this machine
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
    except (OSError, RuntimeError, ValueError) as error:
        address = os.environ.get("RAY_ADDRESS")
        raise ShardError(f"no Ray cluster at RAY_ADDRESS={address}: {error}. Fix it.") from None
    cores = cluster.cores
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
            f"{work.out}: {left} of {stage.num_tasks} tasks of the stage {stage.name} did not "
            f"finish, perhaps for lack of memory or time; logs are in {work.folder / LOGS}. Run "
            "again to continue, with other --cluster.* settings."
        )


def submit_to_slurm(work: Work, cluster: ClusterConfig) -> None:
    """Submit every stage as a job array that waits for the previous array.

    This process may exit afterwards. If a job fails, Slurm cancels the jobs that wait for it.

    Raises:
        ShardError: Slurm rejects the jobs.
    """
    modules: Any = import_module("maskwright.preparation.cluster")
    os.environ.pop("SLURM_ARRAY_TASK_ID", None)  # with it, datatrove runs a rank instead
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
            with_srun=False,  # each job is one task, and srun adds a second to its start
        )
        try:
            executor.run()
        except (subprocess.CalledProcessError, OSError):  # sbatch has printed the reason
            raise ShardError(
                f"{work.out}: Slurm rejects the jobs of stage {stage.name}. Correct --cluster.* as "
                "sbatch says above, and run again."
            ) from None
        last = executor.job_id


def find_jobs(out: Path) -> list[str]:
    """Return the running and pending Slurm jobs that prepare `out`.

    Raises:
        ShardError: Slurm does not answer.
    """
    folder = find_work(out)
    if not folder or not (name := folder / _JOB_NAME).exists() or not shutil.which("squeue"):
        return []
    command = ["squeue", "--noheader", "--format=%F", f"--name={name.read_text()}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise ShardError(
            f"{out} was submitted to Slurm, which does not answer: {listed.stderr.strip()}. "
            "Run again when squeue works."
        )
    return sorted(set(listed.stdout.split()), key=int)


def choose_engine(config: PrepareConfig) -> Engine | None:
    """Return the engine that `config` names; None for Slurm (see `submit_to_slurm`).

    Raises:
        ConfigError: a package or program that the engine needs is missing.
    """
    workers = config.workers or count_cores()
    if config.engine == "local":
        return partial(run_locally, workers)
    check_extra("datatrove", "cluster", f"engine = {config.engine}")
    if config.engine == "datatrove-ray":
        check_extra("ray", "ray", f"engine = {config.engine}")
    missing = [name for name in _SLURM if shutil.which(name) is None]
    if config.engine == "datatrove-slurm" and missing:
        rule, remedy = "needs sbatch, squeue and scancel", "Run it on a login node of the cluster."
        raise ConfigError("engine", config.engine, rule, remedy)
    logs: Any = import_module("datatrove.utils.logging")
    logs.logger.disable("datatrove")  # in this process; the ranks log to files
    if config.engine == "datatrove-local":
        return partial(_run_local_ranks, workers)
    return partial(_run_on_ray, config.cluster) if config.engine == "datatrove-ray" else None


def _new_logs(work: Work, stage: Stage) -> str:
    """Make a new folder for datatrove's logs; its completion markers hold for one run only."""
    number = len(list((work.folder / LOGS).glob(f"{stage.name}-*")))
    folder = work.folder / LOGS / f"{stage.name}-{number}"
    folder.mkdir(parents=True)
    return str(folder)
