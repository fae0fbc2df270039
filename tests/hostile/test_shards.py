"""Prepared data that names files elsewhere, or whose numbers lie, with hashes that are right."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.cli.main import main
from maskwright.config import MAX_VOCAB_SIZE
from maskwright.errors import ShardError
from maskwright.shards.manifest import read_manifest
from maskwright.shards.reader import TokenStore
from tests.hostile.fuzzing import seeds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(seeds.data_folder(), tmp_path / "data")
    return tmp_path / "data"


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def shard_of(values: dict[str, Any]) -> dict[str, Any]:
    return values["splits"]["train"]["shards"][0]


def error_of(folder: Path) -> str:
    with pytest.raises(ShardError) as caught:
        TokenStore.open(folder, "train")
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("../00000", "../../x/00000", "/etc/passwd", "", ".", "0000", "00000\0", "00000/.."),
        *("٠٠٠٠٠", 0, None),
    ],
)
def test_a_shard_is_a_number(folder: Path, name: object) -> None:
    shutil.copytree(folder / "train", folder.parent / "x")
    edit(folder, lambda values: shard_of(values).update(name=name))
    assert "is damaged" in error_of(folder)


@pytest.mark.parametrize("field", ["num_tokens", "num_documents"])
@pytest.mark.parametrize(
    "value",
    [-1, 2**53, 2**63, 10**400, 0.5, 4.0, float("nan"), float("inf"), "4", True, None, [1], {}],
)
def test_a_count_is_a_count(folder: Path, field: str, value: object) -> None:
    def change(values: dict[str, Any]) -> None:
        shard_of(values)[field] = values["splits"]["train"][field] = value

    edit(folder, change)
    assert "is not a count" in error_of(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["dropped"].update(empty=float("inf")), "empty = inf is not a count"),
        (lambda v: v.update(vocab_size=MAX_VOCAB_SIZE + 1), "must be between 1 and"),
        (lambda v: v.update(vocab_size=0), "must be between 1 and"),
        (lambda v: v.update(fingerprint=["x"]), "is not text"),
        (lambda v: v.update(source=7), "is damaged"),
        (lambda v: v.update(more=1), "is damaged"),
        (lambda v: shard_of(v).update(num_documents=0), "0 documents cannot have"),
        (lambda v: shard_of(v)["files"]["ends"].update(num_bytes="8"), "is not a count"),
        (lambda v: v["unigram_counts"].update(num_bytes=8 * 10**15), "do not hold"),
    ],
)
def test_manifests_that_lie(folder: Path, change: Callable[..., object], message: str) -> None:
    edit(folder, change)
    assert message in error_of(folder)


def test_reasons_cannot_steer_a_terminal(folder: Path) -> None:
    edit(folder, lambda values: values["dropped"].update({"\x1b[2J\n[/red]": 1}))
    assert "\\x1b[2J [/red]" in read_manifest(folder).dropped


def forge(folder: Path, kind: str, content: bytes) -> None:
    """Changes a file of the first shard, and the manifest along with it."""
    (folder / "train" / f"00000.{kind}").write_bytes(content)
    entry = {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(folder, lambda values: shard_of(values)["files"][kind].update(entry))


def test_ids_beyond_the_vocabulary(folder: Path) -> None:
    content = bytearray((folder / "train" / "00000.tokens").read_bytes())
    content[-2:] = b"\xff\xff"
    forge(folder, "tokens", bytes(content))
    assert "contains the id 65535, but vocab_size is" in error_of(folder)


def test_ends_that_wrap_around(folder: Path) -> None:
    """Differences of such numbers, as 64-bit integers, are positive throughout."""
    ends = np.frombuffer((folder / "train" / "00000.ends").read_bytes(), "<u8").copy()
    ends[0], ends[1] = 2**63 - 1, 2**63 + 5
    forge(folder, "ends", ends.tobytes())
    assert "is not an increasing list of ends" in error_of(folder)


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/full", "00000.tokens", "nowhere", "/"])
def test_links_to_what_is_no_shard(folder: Path, target: str) -> None:
    path = folder / "train" / "00000.tokens"
    path.unlink()
    path.symlink_to(target)
    assert "00000.tokens" in error_of(folder)


def test_names_of_any_bytes_are_read_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, out = tmp_path / "[red] \x1b[31m", tmp_path / "[b] out"
    corpus.mkdir()
    (corpus / "words.txt").write_text("\n\n".join(seeds.documents()))
    for name in (b"\xff\xfe.txt", b"x.\xff", b"[b]x.[i]"):
        Path(os.fsdecode(os.fsencode(corpus) + b"/" + name)).write_text("Other words.")
    flags = ["--tokenizer.vocab_size", "64", "--tokenizer.min_frequency", "1", "--workers", "1"]
    assert main(["prepare", f"{corpus}/", "--out", str(out), *flags]) == 0
    printed = capsys.readouterr().out
    assert "1 ignored file .\ufffd" in printed
    assert "1 ignored file .[i]" in printed
    manifest = read_manifest(out)
    assert manifest.dropped["ignored file .\ufffd"] == 1
    assert manifest.splits["train"].num_documents > 10
    assert main(["inspect", str(out), "--data.max_seq_length", "32"]) == 0
