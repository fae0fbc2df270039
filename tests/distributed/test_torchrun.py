"""torchrun: two ranks, one of which is killed (see `forked_ranks`), and one rank that shards."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from maskwright.cli.main import main
from maskwright.logs import read_metrics
from tests.distributed.worlds import find_free_port, list_names, run_command
from tests.forked import Forked
from tests.workplace import SMALL, data_of

PATIENCE_SECONDS = 180
NUM_STEPS = 6
TORCHRUN = (sys.executable, "-m", "tests.distributed.forked_ranks")


def run_torchrun(data: Path, runs: Path, name: str) -> str:
    """Run two ranks, one of which dies at its third step; each torchrun is a machine.

    Return what all have said, when all have ended well.
    """
    command = [
        *(*TORCHRUN, "--max-restarts", "2", "--nproc-per-node", "1", "--nnodes", "2"),
        *("--rdzv-backend", "c10d"),
        *("--rdzv-id", name, "--rdzv-endpoint", f"localhost:{find_free_port()}"),
        *("-m", "maskwright", *list_arguments(data, runs, name)),
    ]
    with pytest.MonkeyPatch.context() as monkeypatch, ExitStack() as stack:
        monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        logs = [runs / "0.log", runs / "1.log"]
        launchers = [stack.enter_context(Forked(command, log)) for log in logs]
        codes = [launcher.wait(PATIENCE_SECONDS) for launcher in launchers]
    said = "".join(log.read_text("utf-8") for log in logs)
    assert codes == [0, 0], said
    return said


def list_arguments(data: Path, runs: Path, name: str) -> list[str]:
    """A few steps of FSDP, each with a checkpoint, which is of all ranks."""
    return [
        *("pretrain", str(data), *SMALL, "--runs-dir", str(runs), "--name", name),
        *("--auto-resume", "--train.max_steps", str(NUM_STEPS), "--train.parallel", "fsdp"),
        *("--train.checkpoint_every_minutes", "1e-9", "--train.num_validations", "2"),
        *("--train.log_every_steps", "1"),
    ]


@pytest.fixture(scope="module")
def undisturbed(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose ranks were left alone, and which no torchrun started."""
    runs = tmp_path_factory.mktemp("runs")
    arguments = list_arguments(data_of(workplace), runs, "undisturbed")
    assert run_command(list_names(2), arguments) == [0, 0]
    return runs / "undisturbed"


def test_a_run_whose_rank_is_killed_ends_as_if_nothing_had_happened(
    workplace: Path, tmp_path: Path, undisturbed: Path
) -> None:
    """Two machines are two torchruns here, on one network."""
    data = data_of(workplace)
    said = run_torchrun(data, tmp_path, "killed")
    assert "2 ranks (cpu, fsdp)" in said
    assert "resuming" in said
    weights = [
        (run / "model" / "model.safetensors").read_bytes()
        for run in (undisturbed, tmp_path / "killed")
    ]
    assert weights[0] == weights[1]
    records = read_metrics(tmp_path / "killed" / "metrics.jsonl")
    steps = [record["step"] for record in records if record["split"] == "train"]
    assert steps == list(range(1, NUM_STEPS + 1))


def test_fsdp_of_one_process_trains_as_without_it(workplace: Path, tmp_path: Path) -> None:
    """A GPU alone can show that sharding works."""
    precise = ["--train.precision", "fp32", "--train.checkpoint_every_minutes", "10"]
    arguments = [*list_arguments(data_of(workplace), tmp_path, "sharded"), *precise]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]  # and no fork of it
    launched = subprocess.run([*torchrun, "-m", "maskwright", *arguments], capture_output=True)
    assert launched.returncode == 0, launched.stderr
    checkpoint = max((tmp_path / "sharded" / "checkpoints").iterdir())
    assert list(checkpoint.glob("shard-*"))
    assert main([*list_arguments(data_of(workplace), tmp_path, "plain"), *precise]) == 0
    models = [
        load_file(tmp_path / run / "model" / "model.safetensors") for run in ("sharded", "plain")
    ]
    for name, weight in models[1].items():
        torch.testing.assert_close(models[0][name], weight)


def test_several_processes_need_a_name(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would make one up from its own clock."""
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    assert main(["pretrain", str(data_of(workplace))]) == 2
    assert capsys.readouterr().err == (
        "rank 1: InputError: give the run a --name: processes that share it or come back to it "
        "must know it\n"
    )


def test_hybrid_sharding_of_uneven_machines_is_one_line(workplace: Path, tmp_path: Path) -> None:
    arguments = list_arguments(data_of(workplace), tmp_path, "uneven")
    ranks = [{**names, "LOCAL_WORLD_SIZE": "3"} for names in list_names(2)]
    assert run_command(ranks, [*arguments, "--train.parallel", "hsdp"]) == [2, 2]
