"""Two processes at one folder: one works; when it is killed, nothing of its lock is left."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.common import MASKWRIGHT
from maskwright.cli.main import main
from maskwright.logs import read_metrics
from tests.forked import Forked
from tests.preparation.helpers import read_folder
from tests.reliability.crash.killing import Process, start
from tests.reliability.small import PREPARE, PRETRAIN, cut_back, make_text, weights_of

PATIENCE_SECONDS = 120


def wait_until(condition: Callable[[], object], process: Process) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, "the process ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_second_process_is_refused_and_the_lock_dies_with_the_first(
    data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    cut_back(run, 2)
    endless = ["--train.max_steps", "1000000", "--train.checkpoint_every_minutes", "1000"]
    before = len(read_metrics(run / "metrics.jsonl"))
    command = [*MASKWRIGHT, "pretrain", "--resume", str(run), *endless]
    first = Forked(command, tmp_path / "first.log")
    try:
        wait_until(lambda: len(read_metrics(run / "metrics.jsonl")) > before, first)
        started = ["pretrain", str(data), "--runs-dir", str(tmp_path), "--name", "run", *PRETRAIN]
        for arguments, reason in (
            (["pretrain", "--resume", str(run)], "is being trained by another process"),
            (started, "exists already"),
        ):
            capsys.readouterr()
            assert main(arguments) == 2
            [line] = capsys.readouterr().err.splitlines()
            assert line.startswith(f"InputError: {run} {reason}")
        assert first.poll() is None
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert not [path for path in run.rglob("*") if "lock" in path.name.lower()]
    assert main(["pretrain", "--resume", str(run), "--train.max_steps", "6"]) == 0
    assert weights_of(run) == weights_of(whole)


def test_a_second_preparation_waits_and_takes_over_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    text, out = make_text(tmp_path, 0.3), tmp_path / "out"
    arguments = [*MASKWRIGHT, "prepare", str(text), "--out", str(out), *PREPARE]
    first = start(arguments, tmp_path / "first.log")
    wait_until(lambda: any(out.glob(".work-*/plan.json")), first)
    os.killpg(first.pid, signal.SIGSTOP)
    log = tmp_path / "second.log"
    second = start(arguments, log)
    try:
        wait_until(lambda: "waiting for it" in log.read_text(encoding="utf-8"), second)
        os.killpg(first.pid, signal.SIGKILL)
        assert second.wait(PATIENCE_SECONDS) == 0
    finally:
        for process in (first, second):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert "documents" in log.read_text(encoding="utf-8")
    assert main(["prepare", str(text), "--out", str(tmp_path / "alone"), *PREPARE]) == 0
    assert read_folder(out) == read_folder(tmp_path / "alone")
