"""Folders that somebody changes under a run: one line, and nothing is written where it was."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.train.reporting import RunReporter
from tests.reliability.small import PRETRAIN

Change = Callable[[Path], object]


def pretrain_and(
    change: Callable[[], object], run: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Return the exit code of a run under which `change` happens after its first step."""
    advance, advanced = RunReporter.advance, list[float]()

    def change_and_advance(self: RunReporter, counts: Any, progress: float) -> None:
        if not advanced:
            change()
        advanced.append(progress)
        advance(self, counts, progress)

    monkeypatch.setattr(RunReporter, "advance", change_and_advance)
    where = ["--runs-dir", str(run.parent), "--name", run.name]
    return main(["pretrain", str(data), *where, *PRETRAIN])


def test_ids_beyond_the_vocabulary_are_found(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(data, tmp_path / "data")
    shard = tmp_path / "data" / "train" / "00000.tokens"

    def damage() -> None:
        with shard.open("r+b") as file:
            file.write(b"\xff" * shard.stat().st_size)

    assert pretrain_and(damage, tmp_path / "run", tmp_path / "data", monkeypatch) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ShardError: {shard} is damaged")


def remove(run: Path) -> None:
    shutil.rmtree(run)


def rename(run: Path) -> None:
    run.rename(run.with_name("renamed"))


def replace(run: Path) -> None:
    rename(run)
    run.mkdir()


@pytest.mark.parametrize("change", [remove, rename, replace])
def test_a_lost_run_folder_ends_the_run(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Change,
) -> None:
    run = tmp_path / "run"
    assert pretrain_and(lambda: change(run), run, data, monkeypatch) == 2
    shown = capsys.readouterr()
    [line] = shown.err.splitlines()
    assert str(run) in line
    assert "--resume" not in shown.out
    assert not list(tmp_path.glob("run/*"))
    assert run.exists() == (change is replace)
