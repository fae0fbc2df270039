"""Prepared data that is not what its manifest says is found when a run opens it, and named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from tests.preparation.helpers import write_corpus
from tests.reliability.small import PREPARE, PRETRAIN, cut_back, flip_a_bit

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    shutil.copytree(data, tmp_path / "data")
    return tmp_path / "data"


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Runs a command that must fail; its only line on standard error."""
    capsys.readouterr()
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def pretrain_on(data: Path) -> list[str]:
    return ["pretrain", str(data), "--runs-dir", str(data.parent / "runs"), *PRETRAIN]


FILES = [
    "unigram.counts",
    *(f"{s}/00000.{kind}" for s in ("train", "valid") for kind in ("tokens", "ends", "starts")),
]


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_is_found_and_named(
    copy: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    flip_a_bit(copy / name)
    line = refused(pretrain_on(copy), capsys)
    assert line.startswith(f"ShardError: {copy / name} is damaged")
    assert not (copy.parent / "runs").exists()


def test_a_resumed_run_looks_again(
    copy: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    cut_back(run, 4)
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    provenance["prepared_data"] = str(copy)
    (run / "provenance.json").write_text(json.dumps(provenance), encoding="utf-8")
    flip_a_bit(copy / "train" / "00000.tokens")
    assert "00000.tokens is damaged" in refused(["pretrain", "--resume", str(run)], capsys)
    assert not (run / "model").exists()


def more_tokens(manifest: dict[str, Any]) -> None:
    manifest["splits"]["train"]["num_tokens"] += 8
    manifest["splits"]["train"]["shards"][0]["num_tokens"] += 8


def fewer_documents(manifest: dict[str, Any]) -> None:
    manifest["splits"]["train"]["num_documents"] -= 1
    manifest["splits"]["train"]["shards"][0]["num_documents"] -= 1


def another_sum(manifest: dict[str, Any]) -> None:
    manifest["splits"]["valid"]["num_tokens"] += 1


def another_dtype(manifest: dict[str, Any]) -> None:
    manifest["dtype"] = "uint32"


def another_vocabulary(manifest: dict[str, Any]) -> None:
    manifest["vocab_size"] += 64


def another_tokenizer(manifest: dict[str, Any]) -> None:
    manifest["tokenizer_fingerprint"] = 64 * "0"


def another_hash(manifest: dict[str, Any]) -> None:
    manifest["splits"]["train"]["shards"][0]["files"]["starts"]["sha256"] = 64 * "0"


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (more_tokens, "00000.tokens"),
        (fewer_documents, "00000.ends"),
        (another_sum, "manifest.json"),
        (another_dtype, "manifest.json"),
        (another_vocabulary, "manifest.json"),
        (another_tokenizer, "tokenizer"),
        (another_hash, "00000.starts"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str], lie: Change, named: str
) -> None:
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    lie(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    line = refused(pretrain_on(copy), capsys)
    assert line.startswith("ShardError: ")
    assert str(copy / named) in line or str(copy / "train" / named) in line


def test_a_manifest_of_another_input_is_refused(
    copy: Path, data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    manifest["fingerprint"] = 64 * "0"
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    text = data.parent / "words.txt"
    line = refused(["prepare", str(text), "--out", str(copy), *PREPARE], capsys)
    assert f"{copy} was prepared from other text" in line
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    provenance["prepared_data"] = str(copy)
    (run / "provenance.json").write_text(json.dumps(provenance), encoding="utf-8")
    line = refused(["pretrain", "--resume", str(run)], capsys)
    assert line.startswith(f"CheckpointError: {copy} is not the data that {run} began with")


def test_a_tokenizer_that_does_not_match_is_refused(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_corpus(tmp_path / "other.txt", seed=1)
    assert main(["prepare", str(other), "--out", str(tmp_path / "other"), *PREPARE]) == 0
    shutil.rmtree(copy / "tokenizer")
    shutil.copytree(tmp_path / "other" / "tokenizer", copy / "tokenizer")
    line = refused(pretrain_on(copy), capsys)
    assert line.startswith(f"ShardError: {copy / 'tokenizer'} has the fingerprint")
