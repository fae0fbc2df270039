"""A disk that is full, or that cannot be written to: one line, nothing lost, and on it goes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from tests.reliability.full_disk import SMALL_BLOCKS
from tests.reliability.small import PREPARE, make_run, make_text

ROOT = Path(__file__).parents[2]
IN_NAMESPACE = ["unshare", "--map-root-user", "--mount"]
Report = dict[str, Any]


def can_mount() -> bool:
    command = [*IN_NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What happened in each scenario of `tests.reliability.full_disk`."""
    if not can_mount():
        pytest.skip("no mount namespaces here")
    home = tmp_path_factory.mktemp("disk")
    text = make_text(home, 0.092)
    with SMALL_BLOCKS:
        assert main(["prepare", str(text), "--out", str(home / "data"), *PREPARE]) == 0
    make_run(home / "runs", home / "data", "whole")
    command = [*IN_NAMESPACE, sys.executable, "-m", "tests.reliability.full_disk", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_line(command: Report, *words: str) -> None:
    """That a command failed with one line that says all of `words`."""
    assert command["code"] == 2
    [line] = command["err"].splitlines()
    for word in words:
        assert word in line


def test_a_preparation_keeps_its_shards_and_goes_on(reports: Report) -> None:
    report = reports["prepare_on_a_full_disk"]
    check_line(report["full"], "InputError", "/0000", "No space left on device")
    assert 0 < report["finished_shards"] < 3
    assert report["differing"] == []
    assert report["again"]["code"] == 0
    assert "encoded 1 of 3 blocks before" in report["again"]["out"]
    assert report["differing_at_the_end"] == []
    assert report["names"] == report["expected_names"]


def test_older_checkpoints_stay_and_the_run_goes_on(reports: Report) -> None:
    report = reports["save_a_checkpoint_on_a_full_disk"]
    check_line(report["full"], "CheckpointError", "step_00000004 cannot be written", "No space")
    assert report["names"] == [f"step_{step:08d}" for step in (1, 2, 3)]
    assert report["again"]["code"] == 0
    assert "warning" not in report["again"]["out"]
    assert "at step 3" in report["again"]["out"]
    assert report["same"]


def test_no_half_model_folder_appears(reports: Report) -> None:
    report = reports["save_a_model_on_a_full_disk"]
    check_line(report["full"], "model.safetensors cannot be written", "No space")
    assert not [name for name in report["names"] if "model" in name]
    assert report["again"]["code"] == 0
    assert report["same"]


def test_metrics_that_cannot_be_written_are_written_later(reports: Report) -> None:
    report = reports["log_on_a_full_disk"]
    check_line(report["full"], "InputError", "No space left on device")
    assert report["again"]["code"] == 0
    assert report["steps"] == [1, 2, 3, 4, 5, 6]
    assert report["same"]


def test_what_is_ready_on_a_read_only_disk_can_be_used(reports: Report) -> None:
    report = reports["work_on_a_read_only_disk"]
    assert report["prepared before"]["code"] == 0
    assert "reused" in report["prepared before"]["out"]
    assert report["data that is read"]["code"] == 0
    assert report["same"]


@pytest.mark.parametrize("command", ["prepare", "pretrain", "resume"])
def test_a_read_only_disk_is_one_line(reports: Report, command: str) -> None:
    check_line(reports["work_on_a_read_only_disk"][command], "InputError", "read-only/")
