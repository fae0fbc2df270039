"""The stages of a preparation, and the engines that run their tasks: processes on this machine, or
datatrove's executors.

The tasks of a stage are independent. A finished task is skipped, so a stage may be restarted at any
time, by any number of processes, in any order. Every engine runs the same task functions, which
exchange data only through files, so the prepared folder is the same, byte for byte.

`ProcessPoolExecutor` waits for its processes when it is interrupted, and its semaphores outlive a
killed program; pools of `multiprocessing` wait forever for a process that died. So this module
starts its own processes.
"""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import count
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from maskwright.errors import ConfigError, ShardError
from maskwright.extras import check_extra
from maskwright.files import write_text
from maskwright.preparation import tasks
from maskwright.preparation.config import ClusterConfig, PrepareConfig
from maskwright.preparation.folder import find_work
from maskwright.preparation.work import (
    CONNECT,
    ENCODE,
    EXACT,
    FINISH,
    LOGS,
    NEAR,
    READ,
    VOCABULARY,
    Facts,
    Work,
)

# The stages and the tasks of each.


@dataclass(frozen=True)
class Stage:
    """A stage; `verb`, `unit` and `beginning` are for messages, such as "read 3 of 8 blocks"."""

    name: str
    num_tasks: int
    verb: str
    unit: str
    beginning: str = ""


# Runs the unfinished tasks of a stage and yields, from time to time, how many more are done.
# Closing the iterator stops the tasks.
Engine = Callable[[Work, Stage], Iterator[int]]


def list_stages(work: Work, ahead: bool = False) -> Iterator[Stage]:
    """Yield the stages in order: run each before you take the next, whose rounds depend on it.

    With `ahead`, list all stages now, with all rounds of `connect` as one stage.
    """
    plan = work.plan
    blocks, ranges = len(plan.blocks), plan.num_ranges
    yield Stage(READ, blocks, "read", "block", "reading the text")
    if plan.finds_exact:
        yield Stage(EXACT, ranges, "exact duplicates found in", "range")
    if plan.finds_near:
        verb, beginning = "near duplicates found in", "looking for near duplicates"
        yield Stage(NEAR, plan.count_tasks(NEAR), verb, "range", beginning)
        yield from [Stage(CONNECT, 1, "connected", "graph")] if ahead else list_rounds(work)
    yield Stage(VOCABULARY, 1, "made", "tokenizer")
    yield Stage(ENCODE, blocks, "encoded", "block", "encoding the text")
    yield Stage(FINISH, 1, "wrote", "manifest")


def list_rounds(work: Work) -> Iterator[Stage]:
    """Yield rounds of `connect` until the files of the last one show that it changed nothing."""
    for number in count(1):
        if work.last_round() is not None:
            return
        verb = f"round {number}: connected"
        yield Stage(f"{CONNECT}-{number}", work.plan.num_ranges, verb, "range")


_TASKS: dict[str, Callable[[Work, str, int], Facts]] = {
    EXACT: tasks.find_exact,
    NEAR: tasks.find_near,
    CONNECT: tasks.connect_range,
    VOCABULARY: tasks.make_vocabulary,
    FINISH: tasks.finish_folder,
}


def start_runner(folder: Path) -> Callable[[tuple[str, int]], None]:
    """Return a function that runs a task, given as stage name and number, unless it is done.

    Data that a stage loads is kept until a task of another stage arrives.
    """
    work = Work(folder)

    @lru_cache(1)
    def load(stage: str) -> Callable[[int], Facts]:
        (folder / stage).mkdir(exist_ok=True)
        if stage in (READ, ENCODE):
            return (tasks.BlockReader if stage == READ else tasks.BlockEncoder)(work)
        return partial(_TASKS[stage.partition("-")[0]], work, stage)

    def run(task: tuple[str, int]) -> None:
        stage, number = task
        if not work.is_done(stage, number):
            work.report_done(stage, number, load(stage)(number))

    return run


def list_undone(work: Work, stage: Stage, rank: int = 0, ranks: int = 1) -> list[tuple[str, int]]:
    """Return the unfinished tasks of a stage; with several ranks, those of `rank`."""
    numbers = range(rank, stage.num_tasks, ranks)
    return [(stage.name, number) for number in numbers if not work.is_done(stage.name, number)]


# A pool of processes that can be interrupted (see above).
Line: TypeAlias = "Connection[Any, Any]"
Item = TypeVar("Item")
# Called once in each process; returns the function that is called for each item.
Start: TypeAlias = Callable[[], Callable[[Item], None]]

_MIN_ITEMS = 2  # take less time than starting other processes


def work_through(
    items: Sequence[Item], start: Start[Item], workers: int, place: str, apart: bool = False
) -> Generator[None]:
    """Process all items in any order; yield after each. Closing the generator stops the processes.

    Args:
        start: pickled and sent to each process, which calls it once.
        workers: number of processes; with 1, or few items, this process does the work.
        place: the name of the work, for messages.
        apart: always use other processes.

    Raises:
        ShardError: a process died.
    """
    if items and not apart and (workers == 1 or len(items) <= _MIN_ITEMS):
        work = start()
        for item in items:
            yield work(item)
        return
    waiting, crew = list(reversed(items)), dict[Line, SpawnProcess]()
    try:
        for _ in items[:workers]:
            line, process = _start_process(start)
            crew[line] = process
            line.send(waiting.pop())
        busy = set(crew)
        while busy:
            for line in wait(list(busy)):
                assert isinstance(line, Connection)
                try:
                    error = line.recv()
                    if error is None and waiting:
                        line.send(waiting.pop())
                    else:
                        busy.remove(line)
                except (EOFError, OSError):
                    raise ShardError(
                        f"{place}: a process that worked on it died, perhaps for lack of memory. "
                        "Run again to continue, with fewer --workers."
                    ) from None
                if error is not None:
                    raise error
                yield
    finally:  # killing is safe: files appear complete or not at all
        for process in crew.values():
            process.kill()
        for process in crew.values():
            process.join()


def _start_process(start: Start[Any]) -> tuple[Line, SpawnProcess]:
    """Start a process that ignores Ctrl-C, which the terminal sends to all; the parent handles it.

    The process does not import the program's main file: a main file that calls `prepare` without
    a ``__main__`` guard would call it again, and wait for the folder that is locked here.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(start, theirs), daemon=True)
    resource_tracker.ensure_running()  # else the first start does it, which unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()  # with the same signals blocked
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours, process


def _work(start: Start[Any], line: Line) -> None:
    """Process the items that the parent sends, until it closes the connection or dies."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = parent_process()
    assert parent is not None, "this process was started by `_start_process`"
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    begun = cache(start)  # called with the first item, so that its errors are reported like others
    with suppress(EOFError, OSError):  # the parent has closed the connection
        while True:
            item = line.recv()
            try:
                begun()(item)
                line.send(None)
            except Exception as error:
                error.add_note(traceback.format_exc())  # the traceback itself cannot be sent
                line.send(error)


# The engines, and the choice of one.
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


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


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
