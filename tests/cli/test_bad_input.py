"""Every mistake a user can make gives one clear line and exit code 2."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from tests.command import Cli
from tests.workplace import SMALL, data_of


@pytest.fixture
def pretrain(tmp_path: Path) -> list[str]:
    folders = ["--runs-dir", str(tmp_path / "runs"), "--data-dir", str(tmp_path / "data")]
    return ["pretrain", *folders, *SMALL, "--train.max_steps", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty.txt"], "CorpusError: empty.txt is empty: it has no text"),
        (["binary.txt"], "binary.txt"),
        (["nowhere.txt"], "nowhere.txt"),
        ([], "no text given"),
        (["pydocs", "--train.grad_clp", "1"], "did you mean --train.grad_clip?"),
        (["pydocs", "--lr", "1"], "unknown flag --lr; did you mean --optim.learning_rate?"),
        (["pydocs", "--epochs", "1"], "unknown flag --epochs; did you mean --train.max_epochs?"),
        (["pydocs", "--output_dir", "1"], "unknown flag --output_dir; did you mean --name?"),
        (
            ["pydocs", "--config", "typo.yaml"],
            "unknown key train.grad_clp; did you mean train.grad",
        ),
        (["pydocs", "--config", "other.yaml"], "did you mean optim.learning_rate?"),
        (["pydocs", "--tokenizer.path", "google-bert/bert-base-uncased"], "hf download"),
        (["pydocs", "--model.hidden_act", "gleu"], "Did you mean gelu?"),
        (
            ["pydocs", "--model.hidden_size", "768", "--model.num_attention_heads", "10"],
            "num_attention_heads = 10 does not divide",
        ),
        (["pydocs", "--recipe", "tinny"], "Did you mean tiny?"),
    ],
)
def test_what_cannot_be_pretrained(
    tmp_path: Path,
    pretrain: list[str],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("binary.txt").write_bytes(os.urandom(20_000))
    Path("typo.yaml").write_text("train:\n  grad_clp: 1\n", encoding="utf-8")
    Path("other.yaml").write_text("train:\n  learning_rate: 0.1\n", encoding="utf-8")
    assert message in cli.refuse(*pretrain, *arguments)


def test_run_directory_that_exists(workplace: Path, pretrain: list[str], cli: Cli):
    arguments = [str(workplace / "animals.txt"), "--name", "small"]
    message = cli.refuse(*pretrain, *arguments, "--runs-dir", workplace / "runs")
    assert "exists already" in message


def test_resume_with_another_model(workplace: Path, cli: Cli):
    run = str(workplace / "runs" / "small")
    for flag, value in (("model.hidden_size", "64"), ("optim.name", "adamw"), ("seed", "1")):
        message = cli.refuse("pretrain", "--resume", run, f"--{flag}", value)
        assert f"{flag} = {value} cannot change when a run is resumed" in message


def nothing_is_prepared(tmp_path: Path) -> bool:
    return not (tmp_path / "data").exists() and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--train.seq_length_schedule", "0:32,0.5:64"], "train.seq_length_schedule"),
        (["--train.device", "gpu"], "train.device = gpu is not a device here"),
        (["--model.max_position_embeddings", "16"], "model.max_position_embeddings = 16"),
        (["--tokenizer.path", "nowhere"], "nowhere"),
        (["--model.attention_backend", "varlen"], "varlen needs an NVIDIA GPU"),
    ],
)
def test_configuration_is_checked_before_the_text_is_prepared(
    workplace: Path, tmp_path: Path, pretrain: list[str], cli: Cli, flags: list[str], message: str
):
    arguments = [*pretrain, str(workplace / "animals.txt"), *flags]
    assert message in cli.refuse(*arguments)
    assert message in cli.refuse(*arguments, "--dry-run")
    assert nothing_is_prepared(tmp_path)


def test_an_error_in_assembly_leaves_no_run_directory(
    workplace: Path, tmp_path: Path, pretrain: list[str], cli: Cli
):
    data = str(data_of(workplace))
    message = cli.refuse(*pretrain, data, "--masking.no_mask_tokens", "xylophone")
    assert "masking.no_mask_tokens = xylophone" in message
    assert not (tmp_path / "runs").exists()


def test_a_name_that_is_a_file(tmp_path: Path, pretrain: list[str], cli: Cli):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "taken").touch()
    message = cli.refuse(*pretrain, "pydocs", "--name", "taken")
    assert message.startswith("InputError")
    assert "taken is not a writable folder" in message
    assert not (tmp_path / "data").exists()


def test_an_out_that_is_a_file(workplace: Path, tmp_path: Path, cli: Cli):
    (tmp_path / "taken").touch()
    arguments = [str(workplace / "animals.txt"), "--out", str(tmp_path / "taken")]
    message = cli.refuse("tokenizer", "train", *arguments)
    assert message.startswith(f"InputError: --out = {tmp_path / 'taken'} exists already.")
    assert (tmp_path / "taken").is_file()


def fail_with_error(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr("maskwright.cli.main.load", lambda name: fail)


def test_errors_of_the_file_system(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    fail_with_error(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "runs/x"))
    assert cli.refuse("pretrain") == "InputError: runs/x: Permission denied"
    fail_with_error(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    assert cli.refuse("pretrain") == "InputError: No space left on device"


def test_an_error_that_is_about_no_file_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch):
    fail_with_error(monkeypatch, OSError(errno.EBADF, "Bad file descriptor"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        main(["pretrain"])


def test_preparation_flags_for_prepared_data(workplace: Path, pretrain: list[str], cli: Cli):
    data = str(data_of(workplace))
    message = cli.refuse(*pretrain, data, "--tokenizer.vocab_size", "16384")
    assert message.startswith("ConfigError: tokenizer.vocab_size = 16384 has no effect")
    assert "with 96" in message


def test_resume_of_a_run_without_provenance(workplace: Path, tmp_path: Path, cli: Cli):
    run = tmp_path / "small"
    shutil.copytree(workplace / "runs" / "small", run)
    for content in (None, "{", "[]", '{"prepared_data": "data"}'):
        (run / "provenance.json").unlink()
        if content is not None:
            (run / "provenance.json").write_text(content, encoding="utf-8")
        message = cli.refuse("pretrain", "--resume", run)
        assert message.startswith("CheckpointError")
        assert "provenance.json" in message
        (run / "provenance.json").touch()


def test_fill_with_a_run_that_is_not_finished(workplace: Path, tmp_path: Path, cli: Cli):
    shutil.copy(workplace / "runs" / "small" / "config.yaml", tmp_path)
    message = cli.refuse("fill", tmp_path, "a [MASK]")
    assert message.startswith("ModelFolderError")
    assert f"--resume {tmp_path}" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fill", "nowhere", "a [MASK]"], "ModelFolderError: nowhere"),
        (["tokenizer", "inspect", "/dev/null"], "TokenizerError: /dev/null"),
        (["prepare", "pydocs", "--out", "/dev/null/data"], "InputError: /dev/null/data: Not a dir"),
    ],
)
def test_paths_that_are_no_folders(arguments: list[str], message: str, cli: Cli):
    assert cli.refuse(*arguments).startswith(message)


def test_unknown_command(cli: Cli):
    assert "did you mean fill?" in cli.refuse("fil")


def test_inspect_of_no_data(tmp_path: Path, cli: Cli):
    assert cli.refuse("inspect", tmp_path).startswith("ShardError")
