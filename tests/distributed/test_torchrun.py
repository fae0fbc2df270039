"""torchrun, as a user calls it: several ranks, one of which is killed."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from maskwright.logs import read_metrics
from tests.distributed.worlds import find_free_port, list_names, run_command
from tests.workplace import SMALL

PATIENCE_SECONDS = 180


def start_torchrun(
    data: Path, runs: Path, name: str, num_machines: int = 1
) -> list[subprocess.Popen[str]]:
    """Start two ranks of FSDP, whose checkpoints are of all ranks; each torchrun is a machine."""
    port = str(find_free_port())
    launcher = ["--max-restarts", "2", "--nproc-per-node", str(2 // num_machines)]
    if num_machines == 1:
        launcher += ["--master-port", port]
    else:
        launcher += ["--nnodes", str(num_machines), "--rdzv-backend", "c10d"]
        launcher += ["--rdzv-id", name, "--rdzv-endpoint", f"localhost:{port}"]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher]
    command += ["-m", "maskwright", *list_arguments(data, runs, name)]
    settings = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if num_machines > 1 else {}
    settings["OMP_NUM_THREADS"] = "1"
    return [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **settings},
        )
        for _ in range(num_machines)
    ]


def list_arguments(data: Path, runs: Path, name: str) -> list[str]:
    return [
        *("pretrain", str(data), *SMALL, "--runs-dir", str(runs), "--name", name),
        *("--auto-resume", "--train.max_steps", "120", "--train.parallel", "fsdp"),
        *("--train.checkpoint_every_minutes", "0.005", "--train.num_validations", "2"),
    ]


def finish(launchers: list[subprocess.Popen[str]]) -> str:
    """Return what all have said, when all have ended well."""
    with ExitStack() as stack:
        for launcher in launchers:
            stack.enter_context(launcher)
            stack.callback(launcher.terminate)  # after a failure; one that has ended is left alone
        said = "".join(launcher.communicate(timeout=PATIENCE_SECONDS)[0] for launcher in launchers)
    assert [launcher.returncode for launcher in launchers] == [0] * len(launchers), said
    return said


def find_rank(launchers: list[subprocess.Popen[str]], rank: int) -> int:
    """The process of a rank, among the children of the launchers."""
    tasks = (Path(f"/proc/{launcher.pid}/task/{launcher.pid}") for launcher in launchers)
    wanted = f"RANK={rank}".encode()
    return next(
        int(child)
        for task in tasks
        for child in (task / "children").read_text().split()
        if wanted in Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
    )


@pytest.fixture(scope="module")
def undisturbed(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose ranks were left alone, and which no torchrun started."""
    runs = tmp_path_factory.mktemp("runs")
    arguments = list_arguments(next((workplace / "data").iterdir()), runs, "undisturbed")
    assert run_command(list_names(2), arguments) == [0, 0]
    return runs / "undisturbed"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes in /proc")
@pytest.mark.parametrize("num_machines", [1, 2])
def test_a_run_whose_rank_is_killed_ends_as_if_nothing_had_happened(
    workplace: Path, tmp_path: Path, undisturbed: Path, num_machines: int
) -> None:
    """Two machines are two torchruns here, on one network."""
    data = next((workplace / "data").iterdir())
    killed = start_torchrun(data, tmp_path, "killed", num_machines)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list((tmp_path / "killed" / "checkpoints").glob("step_*")):
        if time.monotonic() > deadline or any(launcher.poll() is not None for launcher in killed):
            pytest.fail(finish(killed))
        time.sleep(0.02)
    os.kill(find_rank(killed, 1), signal.SIGKILL)
    said = finish(killed)
    assert "2 ranks (cpu, fsdp)" in said
    assert "resuming" in said
    weights = [
        (run / "model" / "model.safetensors").read_bytes()
        for run in (undisturbed, tmp_path / "killed")
    ]
    assert weights[0] == weights[1]
    records = read_metrics(tmp_path / "killed" / "metrics.jsonl")
    steps = [record["step"] for record in records if record["split"] == "train"]
    assert steps == list(range(10, 121, 10))


def test_several_processes_need_a_name(workplace: Path, tmp_path: Path) -> None:
    """Each would make one up from its own clock."""
    data = next((workplace / "data").iterdir())
    result = subprocess.run(
        [sys.executable, "-m", "maskwright", "pretrain", str(data)],
        cwd=tmp_path,
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stderr == (
        "rank 1: InputError: give the run a --name: processes that share it or come back to it "
        "must know it\n"
    )
