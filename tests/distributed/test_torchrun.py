"""torchrun, as a user calls it: several ranks, one of which is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maskwright.logs import read_metrics
from tests.distributed.worlds import find_free_port
from tests.workplace import SMALL

PATIENCE_SECONDS = 180


def start_torchrun(data: Path, runs: Path, name: str, *flags: str) -> subprocess.Popen[str]:
    launcher = ["--nproc-per-node", "2", "--max-restarts", "2", "--master-port"]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, str(find_free_port())]
    command += ["-m", "maskwright", "pretrain", str(data), *SMALL]
    command += ["--runs-dir", str(runs), "--name", name, "--auto-resume"]
    command += ["--train.max_steps", "120", "--train.checkpoint_every_minutes", "0.005"]
    command += ["--train.num_validations", "2", *flags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    )


def find_rank(launcher: int, rank: int) -> int:
    """The process of a rank, among the children of its launcher."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    wanted = f"RANK={rank}".encode()
    return next(
        int(child)
        for child in children
        if wanted in Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
    )


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes in /proc")
def test_a_run_whose_rank_is_killed_ends_as_if_nothing_had_happened(
    workplace: Path, tmp_path: Path
) -> None:
    """With FSDP, whose checkpoints are of all ranks; `benchmarks ranks kills` has DDP, too."""
    data, flags = next((workplace / "data").iterdir()), ("--train.parallel", "fsdp")
    with start_torchrun(data, tmp_path, "undisturbed", *flags) as undisturbed:
        said, _ = undisturbed.communicate(timeout=PATIENCE_SECONDS)
    assert undisturbed.returncode == 0, said
    assert "2 ranks (cpu, fsdp)" in said
    with start_torchrun(data, tmp_path, "killed", *flags) as killed:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not list((tmp_path / "killed" / "checkpoints").glob("step_*")):
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(find_rank(killed.pid, 1), signal.SIGKILL)
        said, _ = killed.communicate(timeout=PATIENCE_SECONDS)
    assert killed.returncode == 0, said
    assert "resuming" in said
    weights = [
        (tmp_path / name / "model" / "model.safetensors").read_bytes()
        for name in ("undisturbed", "killed")
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
