"""What a dry run says of this machine, of GPUs that are not here, and to several ranks."""

import os
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch

from maskwright.cli.main import main
from maskwright.model.config import EncoderConfig
from maskwright.pretraining import budget
from maskwright.pretraining.budget import choose_size, is_measured_whole, measure_step_seconds
from maskwright.pretraining.build import resolve_model
from maskwright.pretraining.gpus import parse_cards
from maskwright.pretraining.prepared_data import warn_of_epochs
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.settled import Settled
from tests.architecture.sources import ROOT
from tests.command import Cli
from tests.distributed.worlds import find_free_port, list_names, start_rank
from tests.workplace import SMALL, data_of, write_corpus

CPU = torch.device("cpu")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(write_corpus(tmp_path / "animals.txt", 60))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[EncoderConfig]:
    """The architectures of which steps are timed; a step takes a second for 1,000 tokens."""
    found: list[EncoderConfig] = []

    def time_step(config: PretrainConfig, model: EncoderConfig, *_: object):
        found.append(model)
        return 1.0, 0.5, 1000

    monkeypatch.setattr(budget, "_time_rows", time_step)
    return found


def describe(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """Return the lines of a dry run by their first words."""
    capsys.readouterr()
    assert main(["pretrain", *arguments, "--dry-run"]) == 0
    parts = (line.partition(" ") for line in capsys.readouterr().out.splitlines())
    return {name: value.strip() for name, _, value in parts}


@pytest.mark.parametrize("recipe", ["auto", "tiny", "quickstart"])
def test_small_models_are_measured_whole(recipe: str, measured: list[EncoderConfig]):
    config = resolve(recipe)
    model = resolve_model(config)
    assert is_measured_whole(config, model, CPU)
    seconds = measure_step_seconds(config, model, CPU)
    assert measured == [model]
    assert seconds == pytest.approx(config.train.mean_batch_tokens / 1000 + 0.5)


@pytest.mark.parametrize("recipe", ["small", "base"])
def test_of_large_models_one_layer_is_measured(recipe: str, measured: list[EncoderConfig]):
    config = resolve(recipe)
    model = resolve_model(config)
    assert not is_measured_whole(config, model, CPU)
    assert is_measured_whole(config, model, torch.device("cuda"))
    seconds = measure_step_seconds(config, model, CPU)
    [layer] = measured
    assert (layer.num_hidden_layers, layer.hidden_size) == (1, model.hidden_size)
    kinds = 2 * model.layer_types
    deeper = replace(model, num_hidden_layers=len(kinds), layer_types=kinds)
    # The embeddings and the head have work, too, which does not double.
    assert 1.5 * seconds < measure_step_seconds(config, deeper, CPU) < 2 * seconds


def test_a_layer_can_be_timed(text: str, capsys: pytest.CaptureFixture[str]):
    wide = ["--model.hidden_size", "256", "--model.num_hidden_layers", "9"]
    said = describe(capsys, text, "--recipe", "tiny", *wide)
    assert "one layer" in said["speed"]
    assert "MB" in said["memory"]
    assert "minutes" in said["estimate"]


@pytest.mark.parametrize("device", ["RTX 4090", "H200", "8xH200"])
@pytest.mark.parametrize("recipe", ["auto", "base"])
def test_named_gpus_need_none_here(
    device: str,
    recipe: str,
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    for module, name in ((budget, "measure_step_seconds"), (budget, "_time_rows")):
        monkeypatch.delattr(module, name)
    flags = ["--recipe", recipe, "--for-device", device, "--train.max_minutes", "600"]
    said = describe(capsys, text, *flags)
    assert ("size" in said) == (recipe == "auto")
    card = "24.0 GB" if "4090" in device else "141.0 GB"
    assert card in said["memory"]
    assert "10.0 hours" in said["estimate"]
    assert "tokens/s" in said["speed"]
    assert ("measured" in said["speed"]) == (recipe == "base" and device == "H200")


def test_machine_and_text_choose_the_size():
    sizes = ("0:64x1", "1:128x2", "5:192x2", "200:256x3")
    # Steps so large that the GPU does not wait for the host.
    train = {"max_minutes": 60, "batch_tokens": 1 << 20}
    settled = Settled.read("auto", None, {"model": {"sizes": sizes}, "train": train})

    def choose(device: str, tokens: float | None) -> int:
        cards = parse_cards(device, "device")
        return choose_size(settled, None, tokens, cards=cards).config.model.hidden_size

    assert choose("L4", None) < choose("H200", None)
    assert choose("H200", 1e12) == choose("H200", None)
    assert choose("H200", 1e5) == 64


@pytest.mark.parametrize(
    "flags",
    [
        ["--dry-run", "--for-device", "H20"],
        ["--for-device", "H200"],
        ["--dry-run", "--for-device", "9xH100"],
    ],
)
def test_mistakes(flags: list[str], text: str, cli: Cli):
    line = cli.refuse("pretrain", text, "--name", "run", *flags)
    assert line.startswith("ConfigError: for_device = ")
    assert not Path("runs").exists()


def test_many_epochs_are_warned_of(
    text: str, capsys: pytest.CaptureFixture[str], measured: list[EncoderConfig]
):
    assert not warn_of_epochs(40)
    assert "7,408 epochs" in warn_of_epochs(7408)
    assert "epochs" in describe(capsys, text, "--train.max_epochs", "41")["warning:"]
    assert "warning:" not in describe(capsys, text, "--train.max_epochs", "39")
    assert "warning:" in describe(capsys, text, "--train.max_minutes", "600")
    assert "warning:" in describe(capsys, text, "--for-device", "H200")


def test_a_run_with_sizes_warns_at_its_start(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    small = (
        SMALL[: SMALL.index("--model.hidden_size")] + SMALL[SMALL.index("--train.batch_tokens") :]
    )
    command = ["pretrain", str(data_of(workplace)), *small, "--model.sizes", "0:64x1"]
    tokens = ["--train.max_tokens", "1000", "--runs-dir", str(tmp_path)]
    assert main([*command, *tokens, "--name", "few"]) == 0
    assert "warning: about" not in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maskwright.pretraining.prepared_data._MANY_EPOCHS", 1e-3)
        assert main([*command, *tokens, "--name", "many"]) == 0
    assert "warning: about" in capsys.readouterr().out


def say_dry_run(names: dict[str, str], arguments: list[str]) -> str:
    """What ``pretrain ARGUMENTS --dry-run`` prints on the rank of these names."""
    os.environ.update(names)
    with redirect_stdout(StringIO()) as said:
        assert main(["pretrain", *arguments, "--dry-run"]) == 0
    return said.getvalue()


@pytest.mark.parametrize("flags", [[], ["--for-device", "8xH200"]])
def test_one_of_several_ranks_prints(flags: list[str], workplace: Path):
    run = [str(data_of(workplace)), *SMALL, "--name", "never", "--train.max_steps", "9", *flags]
    ranks = [start_rank(say_dry_run, names, run) for names in list_names(2)]
    first, second = (rank.result(timeout=180) for rank in ranks)
    for name in ("model", "memory", "device", "speed", "estimate"):
        assert first.count(f"{name}  ") == 1, first
    assert ("one of 2 ranks" in first) == (not flags)
    assert second == ""


def test_accelerate_starts_ranks_as_torchrun_does(workplace: Path):
    """What it calls several GPUs may be a CPU."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    command += ["--num_processes=2", f"--main_process_port={find_free_port()}", "-m", "maskwright"]
    command += ["pretrain", str(data_of(workplace)), *SMALL, "--name", "never", "--dry-run"]
    command += ["--train.max_steps", "9", "--for-device", "8xH200"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for name in ("model", "memory", "device", "speed", "estimate"):
        assert result.stdout.count(f"{name}  ") == 1, result.stdout


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"Inhalt,Art\nJa,1\nNein,0\n"),
        ("a.tsv", b"text\tlabel\n" + b"too\tmany\tcolumns\n" * 20),
        ("a.csv", b"text,label\n"),
        ("a.jsonl", b'{"body": "Snails eat leaves."}\n' * 20),
        ("a.jsonl", b'{"text": 1}\n' * 20),
        ("a.jsonl", b'[{"text": "Snails eat leaves."}]\n'),
        ("a.jsonl", b"Snails eat leaves.\n"),
        ("a.txt", b""),
        ("a.txt", b" \n\n"),
        ("a.txt", b"PK\x03\x04\x14\x00\x00\x00\x08\x00" * 50),
        ("a.txt.gz", b"no gzip at all"),
        ("a.parquet", b"no parquet at all"),
        ("a.log", b'{"text": "Snails eat leaves."}\n'),
    ],
)
def test_a_dry_run_refuses_the_text_that_a_run_refuses(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    arguments = ["pretrain", name, "--recipe", "tiny", "--train.max_steps", "1"]
    assert cli.refuse(*arguments, "--dry-run") == cli.refuse(*arguments, "--name", "run")
