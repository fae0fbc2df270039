"""Work handed out to datatrove's executors: done once, whoever dies; told about, if it is not."""

import os
import socket
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import ShardError
from maskwright.preparation.cluster.config import ClusterConfig, EngineName
from maskwright.preparation.cluster.engine import ClusterEngine
from maskwright.preparation.cluster.launch import check_address
from tests.preparation.cluster.helpers import (
    ENVIRONMENT,
    begin_doubling,
    begin_dying,
    begin_failing,
    begin_sleeping,
    install_slurm,
    list_processes,
)

pytestmark = pytest.mark.skipif(find_spec("datatrove") is None, reason="datatrove is not installed")
DOUBLED = [0, 2, 4, 6, 8]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install_slurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}:{os.environ['PATH']}")
    return tmp_path / "slurm"


class Handed:
    """An engine in a folder, and what it says."""

    def __init__(self, folder: Path, name: EngineName = "datatrove-local", **cluster: Any) -> None:
        self.said: list[str] = []
        settings = {"partition": "cpu", "memory_gigabytes": 1, **cluster}
        self.root = folder / ".tasks"
        self.engine = ClusterEngine(name, ClusterConfig(**settings), 2, self.root, self.said.append)

    def do(self, start: Callable[[], Callable[[Any], Any]]) -> list[Any]:
        return sorted(self.engine.work_through(range(5), start, "numbers"))

    def has_left(self) -> list[int]:
        """Processes that are still there a moment later."""
        deadline = time.monotonic() + 10
        while (found := list_processes(str(self.root))) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found


def test_items_in_waves_are_done_once(tmp_path: Path) -> None:
    handed = Handed(tmp_path, spool_gigabytes=5e-8)  # some three numbers in each
    assert handed.do(partial(begin_doubling, tmp_path / "log")) == DOUBLED
    assert len(handed.said) == 2
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "1", "2", "3", "4"]
    assert [entry.name for entry in handed.root.iterdir()] == ["lock"]
    assert handed.has_left() == []


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    handed = Handed(tmp_path)
    assert handed.do(partial(begin_dying, 2, 1, tmp_path / "marks")) == DOUBLED
    assert "2 of 5 parts of the work were not done; they are handed out again" in handed.said[-1]


def test_one_that_dies_each_time_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    handed = Handed(tmp_path)
    with pytest.raises(ShardError, match=r"numbers: 1 of 5 parts .* the logs are in") as caught:
        handed.do(partial(begin_dying, 4, 100, tmp_path / "marks"))
    folder = Path(str(caught.value).partition("logs are in ")[2].partition(". Run again")[0])
    assert (folder / "datatrove" / "logs" / "task_00000.log").is_file()
    completed = (folder / "datatrove" / "completions").iterdir()  # datatrove's markers
    assert [path.name for path in completed] == ["00001"]  # of the two tasks
    assert len(list((tmp_path / "marks").iterdir())) == 3  # with others, and twice alone


def test_an_error_comes_back_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="three is refused") as caught:
        Handed(tmp_path).do(begin_failing)
    assert "in check" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("name", ["datatrove-local", "datatrove-slurm"])
def test_closing_ends_the_work_at_once(tmp_path: Path, slurm: Path, name: EngineName) -> None:
    handed = Handed(tmp_path, name)
    results = handed.engine.work_through(range(5), begin_sleeping, "numbers")
    assert next(results) == 0
    assert len(list_processes(str(handed.root))) >= 2
    results.close()
    assert handed.has_left() == []


def test_slurm_runs_the_tasks_of_an_array(tmp_path: Path, slurm: Path) -> None:
    handed = Handed(tmp_path, "datatrove-slurm", cores=2, sbatch=("account=nlp",), time="0:10:00")
    assert handed.do(partial(begin_doubling, tmp_path / "log")) == DOUBLED
    [script] = slurm.glob("maskwright-*.sh")
    text = script.read_text()
    for line in ("account=nlp", "array=0-1", "cpus-per-task=2", "mem-per-cpu=1G", "time=0:10:00"):
        assert f"#SBATCH --{line}\n" in text
    assert "qos" not in text
    assert "srun --cpus-per-task=2 -l -n 1 launch_pickled_pipeline" in text
    assert handed.has_left() == []


def test_a_job_that_fails_is_one_line(tmp_path: Path, slurm: Path) -> None:
    (slurm / "broken").touch()
    with pytest.raises(ShardError, match="5 of 5 parts of the work were not done") as caught:
        Handed(tmp_path, "datatrove-slurm").do(begin_doubling)
    folder = Path(str(caught.value).partition("logs are in ")[2].partition(". Run again")[0])
    logs = (folder / "datatrove" / "slurm_logs").glob("*.out")
    assert all("node is broken" in log.read_text() for log in logs)
    assert len(list(slurm.glob("maskwright-*.sh"))) == 2


def test_a_partition_that_is_not_there_is_one_line(tmp_path: Path, slurm: Path) -> None:
    match = "numbers: datatrove-slurm cannot begin: sbatch: error: invalid partition specified: gpu"
    with pytest.raises(ShardError, match=match):
        Handed(tmp_path, "datatrove-slurm", partition="gpu").do(begin_doubling)


def test_an_address_of_ray_without_a_cluster_is_known_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with pytest.raises(ConnectionError, match=f"nothing answers at RAY_ADDRESS={address}"):
                check_address(address)
        unused.listen()
        check_address(f"127.0.0.1:{port}")
    check_address("auto")


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_ray_replaces_processes_that_die(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    handed = Handed(tmp_path, "datatrove-ray")
    assert handed.do(partial(begin_dying, 2, 1, tmp_path / "marks")) == DOUBLED
    assert "they are handed out again" in handed.said[-1]
    assert handed.has_left() == []
