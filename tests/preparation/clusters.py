"""Engines with real clusters on this machine, whose tasks, coordinator and nodes can be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from benchmarks import slurm_cluster
from benchmarks.common import MASKWRIGHT, list_tree

_PATIENCE = 600.0  # seconds
# Of the stages: whoever is killed is killed when such a file is there; a hidden one is unfinished.
_MOMENTS = {"task": "train/.*", "coordinator": "near/*.json", "node": "read/*.json"}
_SUBMITTING = "logs/near-0"  # a folder that the coordinator makes between two submissions
_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Engine:
    """An engine that is ready to work.

    Attributes:
        option: how many tasks share a stage.
        worker: a part of the command line of processes that work on tasks.
        codes: the exit codes of the same command until the folder is finished, by who is killed.
        find_roots: returns the processes above those that work, given the coordinator; of a
            cluster, one for each node.
        kill_node: kills the last node with all that works there.
        is_busy: returns True if somebody works although the command has ended.
    """

    name: str
    option: str
    worker: str
    codes: Mapping[str, list[int]]
    find_roots: Callable[[int], list[int]] = lambda coordinator: [coordinator]
    kill_node: Callable[[], None] = lambda: None
    is_busy: Callable[[], bool] = lambda: False

    def prepare(self, out: Path, arguments: Sequence[str], victim: str = "") -> list[int]:
        """Runs the same command until `out` is finished; returns its exit codes.

        Args:
            victim: killed in mid-run: task, coordinator or node; empty: nobody.
        """
        command = [*MASKWRIGHT, "prepare", *arguments, "--engine", self.name, "--out", str(out)]
        codes = list[int]()
        while not codes or codes[-1] or any(out.glob(".work-*")):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                try:
                    if victim and not codes:
                        self._kill(victim, process, out)
                    codes.append(process.wait(_PATIENCE))
                finally:
                    process.kill()
            if codes[-1] >= 0:  # else the next one meets what the killed one has left at work
                until(lambda: not self.is_busy())
        return codes

    def _kill(self, victim: str, process: subprocess.Popen[bytes], out: Path) -> None:
        is_submitter = victim == "coordinator" and self.name == "datatrove-slurm"
        moment = _SUBMITTING if is_submitter else _MOMENTS[victim]

        def find_victims() -> list[int]:
            if process.poll() is not None and not self.is_busy():
                raise ChildProcessError(f"all was done before the {victim} was killed")
            if not any(out.glob(f".work-*/{moment}")):
                return []
            if victim == "coordinator":
                return [process.pid]
            roots = self.find_roots(process.pid)
            trees = map(list_tree, roots[-1:] if victim == "node" else roots)
            return [pid for tree in trees for pid in tree if self._does_tasks(pid)]

        worker, *_ = until(find_victims)
        self.kill_node() if victim == "node" else os.kill(worker, signal.SIGKILL)

    def _does_tasks(self, pid: int) -> bool:
        try:
            return self.worker in Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:  # it has ended meanwhile
            return False


def until(condition: Callable[[], Found]) -> Found:
    """Returns what `condition` returns as soon as it is true."""
    end = time.monotonic() + _PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)
    return found


def find_missing(name: str) -> str:
    """Returns what an engine lacks here; empty if it can be started."""
    found = {"datatrove": find_spec("datatrove"), "ray": find_spec("ray")}
    missing = [package for package, spec in found.items() if package in name and spec is None]
    if name == "datatrove-slurm" and not slurm_cluster.is_available():
        missing.append("root or slurm-wlm")
    if name == "datatrove-ray" and os.geteuid():
        missing.append("root")
    return " and ".join(missing)


@contextmanager
def start_engine(name: str, folder: Path) -> Iterator[Engine]:
    """Starts what the engine needs, in an empty folder with a short name, and takes it down."""
    starts = {"datatrove-ray": _start_ray, "datatrove-slurm": _start_slurm}
    with patch.dict(os.environ), starts.get(name, partial(_start_none, name))(folder) as engine:
        yield engine


@contextmanager
def _start_none(name: str, folder: Path) -> Iterator[Engine]:
    """Starts nothing: children of the coordinator do the work."""
    codes = {"": [0], "task": [2, 0], "coordinator": [-9, 0]}
    yield Engine(name, "--workers", "spawn_main", codes)


@contextmanager
def _start_ray(folder: Path) -> Iterator[Engine]:
    """Starts two nodes, each in a PID namespace; the second is killed, and stays away."""
    nodes = list[subprocess.Popen[bytes]]()

    def kill_node() -> None:
        with nodes.pop() as node:
            for first in list_tree(node.pid)[1:2]:  # its namespace ends with it
                os.kill(first, signal.SIGKILL)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()}
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    start = f"{sys.executable} -m ray.scripts.scripts start --temp-dir={folder} --num-cpus=2"
    start += " --memory=8000000000 --object-store-memory=100000000"
    places = f"--head --port={port} --include-dashboard=0", f"--address=127.0.0.1:{port}"
    try:
        for number, place in enumerate(places):
            log = folder / f"{number}.log"
            script = f"{start} {place} >{log} 2>&1 && touch {log}.up"
            command = [*_NAMESPACE, f"{script} && exec sleep infinity"]
            pipes = subprocess.DEVNULL
            nodes.append(subprocess.Popen(command, stderr=pipes, start_new_session=True))
            until(lambda up=Path(f"{log}.up"): up.exists() or nodes[-1].poll())
        codes = {"": [0], "task": [0], "coordinator": [-9, 0], "node": [0]}
        yield Engine(
            "datatrove-ray",
            "--cluster.tasks",
            "ray::run_rank",
            codes,
            find_roots=lambda coordinator: [node.pid for node in nodes],
            kill_node=kill_node,
        )
    finally:
        while nodes:
            kill_node()


@contextmanager
def _start_slurm(folder: Path) -> Iterator[Engine]:
    """Starts two nodes; the second is killed, and started again when Slurm has noticed."""
    cluster = folder / "slurm"
    pids = [cluster / "node1.pid", cluster / "node2.pid"]
    os.environ["SLURM_CONF"] = f"{cluster}/slurm.conf"

    def ask(command: str) -> str:
        return subprocess.check_output(command.split(), text=True)

    def kill_node() -> None:
        slurm_cluster.stop_machine(cluster, "node2")
        until(lambda: "down" in ask("sinfo -h -n node2 -o %t"))
        slurm_cluster.start_machine(cluster, "node2")

    # While jobs run, it is refused (2); the last time it finds the folder finished, and tidies it.
    codes = {"": [0, 0], "task": [0, 0, 0], "coordinator": [-9, 2, 0, 0], "node": [0, 0]}
    try:
        slurm_cluster.start(cluster)
        yield Engine(
            "datatrove-slurm",
            "--cluster.tasks",
            "launch_pickled_pipeline",
            codes,
            find_roots=lambda coordinator: [int(path.read_text()) for path in pids],
            kill_node=kill_node,
            is_busy=lambda: bool(ask("squeue -h")),
        )
    finally:
        slurm_cluster.stop(cluster)
