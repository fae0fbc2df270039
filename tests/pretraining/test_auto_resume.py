"""``--auto-resume``: the same command, given again and again until the run has ended."""

import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.errors import ConfigError
from maskwright.logs import read_metrics
from maskwright.runs.config import resolve
from maskwright.runs.run_directory import check_changes, list_changes
from tests.workplace import SMALL, data_of


def steps_of(run: Path) -> list[int]:
    records = read_metrics(run / "metrics.jsonl")
    return [record["step"] for record in records if record["split"] == "train"]


@pytest.fixture
def command(workplace: Path, tmp_path: Path) -> list[str]:
    data = data_of(workplace)
    return ["pretrain", str(data), "--runs-dir", str(tmp_path), "--name", "run", "--auto-resume"]


def test_the_first_time_it_begins_and_then_it_goes_on(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = [*command, *SMALL, "--train.max_steps", "20"]
    assert main(flags) == 0
    assert "resuming" not in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run" / "model")
    assert main([*flags[:-1], "30"]) == 0
    assert "at step 20\n" in capsys.readouterr().out
    assert steps_of(tmp_path / "run") == [10, 20, 30]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert main([*flags[:-1], "30"]) == 0
    assert "at step 30 (it had ended; its last weights are" in capsys.readouterr().out


def test_a_run_that_exists_is_refused_by_a_restarted_process_too(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """torchrun starts all ranks again when the first attempt has refused the name."""
    without = [flag for flag in [*command, *SMALL] if flag != "--auto-resume"]
    assert main([*without, "--train.max_steps", "10"]) == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert main([*without, "--train.max_steps", "20"]) == 2
    assert "a job that may be restarted: --auto-resume" in capsys.readouterr().err
    assert steps_of(tmp_path / "run") == [10]


def test_it_needs_a_name(command: list[str], capsys: pytest.CaptureFixture[str]):
    without = [flag for flag in command if flag not in ("--name", "run")]
    assert main([*without, *SMALL]) == 2
    assert "give the run a --name" in capsys.readouterr().err


def test_changes_are_what_differs():
    begun = resolve("tiny", None, {"train": {"max_steps": 10}})
    asked = resolve("tiny", None, {"train": {"max_steps": 20}, "optim": {"learning_rate": 1e-4}})
    changes = list_changes(begun, asked)
    assert changes == {"train": {"max_steps": 20}, "optim": {"learning_rate": 1e-4}}
    check_changes(changes)
    assert list_changes(begun, begun) == {}


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"optim": {"name": "adamw"}}, "optim.name"),
        ({"model": {"hidden_size": 64}}, "model.hidden_size"),
        ({"text": ["other.txt"]}, "text"),
    ],
)
def test_what_would_make_it_another_run_cannot_change(overrides: dict, field: str):
    changes = list_changes(resolve("tiny"), resolve("tiny", None, overrides))
    with pytest.raises(ConfigError) as caught:
        check_changes(changes)
    assert caught.value.field == field


def test_a_budget_that_is_spent_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Half-way, at the full learning rate, and at the end."""
    run = tmp_path / "run"
    flags = [*command, *SMALL, "--train.checkpoint_every_minutes", "1e-9"]
    flags += ["--train.keep_checkpoints", "99", "--train.num_validations", "1", "--train.max_steps"]
    assert main([*flags, "12"]) == 0
    config = (run / "config.yaml").read_text()
    for budget, value in (("max_steps", "12"), ("max_minutes", "1e-6"), ("max_epochs", "1e-5")):
        resume = ["pretrain", "--resume", str(run), f"--train.{budget}", value]
        assert main(resume) == (0 if value == "12" else 2)
    for step in range(7, 13):
        shutil.rmtree(run / "checkpoints" / f"step_{step:08d}")
    shutil.rmtree(run / "model")
    capsys.readouterr()
    for budget, value, resume in (
        ("max_steps", "5", [*flags, "5"]),
        ("max_steps", "6", ["pretrain", "--resume", str(run), "--train.max_steps", "6"]),
        ("max_tokens", "9", ["pretrain", "--resume", str(run), "--train.max_tokens", "9"]),
        ("max_epochs", "1e-05", ["pretrain", "--resume", str(run), "--train.max_epochs", "1e-5"]),
    ):
        assert main(resume) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"ConfigError: train.{budget} = {value} is already spent")
    assert (run / "config.yaml").read_text() == config
    assert not (run / "model").exists()
    assert main(["pretrain", "--resume", str(run), "--train.max_steps", "8"]) == 0
    assert steps_of(run)[-1] == 8
