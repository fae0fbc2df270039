"""Who may begin a run in a folder; and the Python twin of ``maskwright pretrain``."""

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from maskwright import MaskwrightError, pretrain
from maskwright.cli.main import main
from maskwright.errors import CheckpointError, InputError
from maskwright.logs import read_metrics
from maskwright.runs.run_directory import begin_run, check_new, locking_run, read_provenance
from maskwright.train.trainer import Trainer
from tests.workplace import SMALL, data_of


def test_a_run_that_ended_early_is_replaced(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = str(data_of(workplace))
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "config.yaml").touch()
    (dead / "metrics.jsonl").write_text('{"split": "train", "step": 77}\n', encoding="utf-8")
    for leftover in ("tensorboard", "trackers", "chck_1M"):
        (dead / leftover).mkdir()
    flags = [*SMALL, "--train.max_steps", "1", "--runs-dir", str(tmp_path), "--name", "dead"]
    assert main(["pretrain", data, *flags]) == 0
    assert "ended before its first checkpoint" in capsys.readouterr().out
    assert {"trackers", "chck_1M"}.isdisjoint(path.name for path in dead.iterdir())
    assert {record["step"] for record in read_metrics(dead / "metrics.jsonl")} == {1}
    with pytest.raises(InputError, match="exists already"):  # now there is something to lose
        check_new(dead)


def test_a_folder_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(InputError, match="exists already"):
        begin_run(tmp_path, "", {}, print)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_in_progress_is_left_alone(tmp_path: Path):
    with (
        locking_run(tmp_path, print),
        pytest.raises(InputError, match="being trained by another process"),
        locking_run(tmp_path, print),
    ):
        pass
    with locking_run(tmp_path, print):
        pass


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, MaskwrightError), (signal.SIGINT, KeyboardInterrupt)]
)
def test_python_is_told_that_a_run_was_stopped(
    workplace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    error: type[BaseException],
):
    log = Trainer._log_if_due

    def log_and_stop(self, *arguments) -> None:
        log(self, *arguments)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Trainer, "_log_if_due", log_and_stop)
    with pytest.raises(error, match="--resume"):
        pretrain(
            str(data_of(workplace)),
            out=tmp_path / "run",
            data={"max_seq_length": 32},
            model={"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1},
            train={"max_steps": 5, "compile": "off", "valid_tokens": 512},
        )
    assert not (tmp_path / "run" / "model").exists()


def test_a_run_killed_while_it_wrote_its_first_file_is_replaced(tmp_path: Path):
    (tmp_path / ".config.yaml.tmp").write_text("train:\n  max_st", encoding="utf-8")
    check_new(tmp_path)
    begin_run(tmp_path, "seed: 0\n", {}, print)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.yaml", "provenance.json"}


def test_resumptions_that_are_no_list_are_one_line(tmp_path: Path):
    facts = {"prepared_data": "data", "corpus": {"fingerprint": "1"}, "resumptions": 3}
    begin_run(tmp_path, "", facts, print)
    with pytest.raises(CheckpointError, match="resumptions is not a list"):
        read_provenance(tmp_path)


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    said: list[str] = []
    with locking_run(tmp_path, said.append):
        pass
    assert said == [
        f"warning: {tmp_path} cannot be locked (No locks available): let only one process use it"
    ]
