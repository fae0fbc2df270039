"""A real Slurm cluster on this machine, where Debian's packages are installed."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.slurm_cluster import is_available, start, start_machine, stop, stop_machine

pytestmark = pytest.mark.skipif(not is_available(), reason="needs root and slurm-wlm")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cluster"
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    try:
        start(folder)
        yield folder
    finally:
        stop(folder)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_two_nodes_share_the_jobs(cluster: Path, tmp_path: Path) -> None:
    assert sorted(run("srun", "--nodes=2", "hostname").split()) == ["node1", "node2"]
    output = f"--output={tmp_path}/%a"
    run("sbatch", "--wait", "--array=0-3", output, "--wrap", 'echo "$SLURM_ARRAY_TASK_ID"')
    assert [(tmp_path / str(number)).read_text() for number in range(4)] == [
        f"{number}\n" for number in range(4)
    ]


def test_a_killed_node_takes_its_jobs_with_it_and_comes_back(cluster: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job = f"(echo begun; exec sleep 600) >{pipe}"
    run("sbatch", "--output=/dev/null", "--nodelist=node2", "--wrap", job)
    with pipe.open("rb", buffering=0) as file:
        assert file.readline() == b"begun\n"
        stop_machine(cluster, "node2")
        os.set_blocking(file.fileno(), False)
        assert file.read() == b""  # None while the job still has the other end open
    start_machine(cluster, "node2")
    assert run("srun", "--nodelist=node2", "hostname") == "node2\n"


def test_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    start(folder)
    stop(folder)
    assert not folder.exists()
    assert list(find_processes(folder)) == []


def find_processes(folder: Path) -> Iterator[int]:
    """Yield the processes whose environment names the folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(folder) in (entry / "environ").read_bytes():
                yield int(entry.name)
        except OSError:  # it has ended
            continue
