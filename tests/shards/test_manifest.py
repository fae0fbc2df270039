import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import ShardError
from maskwright.shards.manifest import read_manifest
from tests.shards.helpers import VOCAB_SIZE, write_prepared


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifest = write_prepared(tmp_path)
    assert read_manifest(tmp_path) == manifest


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"has no manifest\.json"):
        read_manifest(tmp_path)
    with pytest.raises(ShardError, match=r"nowhere does not exist\. Check the path"):
        read_manifest(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["", "[]", "{}", "7", '{"format": "other"}', "\xff"])
def test_a_file_that_is_no_manifest(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ShardError, match=r"manifest\.json is damaged") as error:
        read_manifest(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("version", 99, "version 99"),
        ("splits/valid", None, "valid.* is missing"),
        ("dtype", "uint32", "not stored as uint32"),
        ("splits/train/num_tokens", 16, "do not add up"),
        ("splits/train/shards/0/files/ends", None, "ends.* is missing"),
        ("vocab_size", VOCAB_SIZE + 1, "bytes do not hold"),
        ("dropped", [1], "damaged"),
    ],
)
def test_a_manifest_that_contradicts_itself(
    place: str, value: Any, message: str, tmp_path: Path
) -> None:
    write_prepared(tmp_path)
    file = tmp_path / "manifest.json"
    values = json.loads(file.read_text())
    inner, (*way, last) = values, place.split("/")
    for name in way:
        inner = inner[int(name) if name.isdigit() else name]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    file.write_text(json.dumps(values))
    with pytest.raises(ShardError, match=message):
        read_manifest(tmp_path)
