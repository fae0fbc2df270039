"""Short versions of `benchmarks crash-test`: killed or stopped, and the end is the same."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.crash_test import LIMIT_SECONDS
from tests.forked import Forked
from tests.reliability.crash.job import Job
from tests.reliability.crash.killing import appearing
from tests.reliability.crash.preparation import Preparations
from tests.reliability.crash.pretraining import PretrainingRuns


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(
            Job, "start", lambda _, command, log: Forked(command, log, use_two_threads)
        )
        yield


def use_two_threads() -> None:
    """As in a run of a user: sums must not depend on which thread comes first."""
    torch.set_num_threads(2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> PretrainingRuns:
    folder = tmp_path_factory.mktemp("runs")
    return PretrainingRuns(folder, steps=45, checkpoint_seconds=0.02, report=False)


def test_a_run_killed_and_interrupted_on_its_way_ends_with_the_same_weights(
    runs: PretrainingRuns,
) -> None:
    run, draw = runs.folder / "run", random.Random(0)
    done = runs.go_on(run, runs.aim(run, "checkpoint", draw))
    assert done.was_killed, done.output
    done = runs.go_on(run, runs.aim(run, "validation", draw), signal.SIGINT)
    assert done.code == 128 + signal.SIGINT, done.output
    assert done.seconds_to_exit < LIMIT_SECONDS
    assert list(runs.check_stopped(run, done)) == []
    done = runs.go_on(run)
    assert done.code == 0, done.output
    assert "warning" not in done.output
    assert runs.compare(run) == []


def test_the_comparison_would_notice(runs: PretrainingRuns) -> None:
    run = runs.folder / "changed"
    shutil.copytree(runs.whole, run)
    assert runs.compare(run) == []
    weights, metrics = run / "model" / "model.safetensors", run / "metrics.jsonl"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    metrics.write_text("".join(lines[:7] + lines[8:]), encoding="utf-8")
    (run / "checkpoints" / ".step_00000045.tmp").mkdir()
    found = " ".join(runs.compare(run))
    for words in (
        "model.safetensors differs",
        "metrics.jsonl differs",
        "still holds checkpoints/.step_",
    ):
        assert words in found


def test_what_an_earlier_process_left_is_no_moment_to_kill_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".step_00000007.tmp"
    left.mkdir()
    has_appeared, has_appeared_twice = (appearing(tmp_path, ".step_", skip) for skip in (0, 1))
    assert not has_appeared()
    left.rmdir()
    left.mkdir()
    assert has_appeared()
    assert not has_appeared_twice()
    (tmp_path / ".step_00000008.tmp").mkdir()
    assert has_appeared_twice()


def test_a_preparation_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    tally = Preparations(tmp_path, megabytes=1.3).kill(2)
    assert tally.kills.total() == 2
    assert tally.differences == []
