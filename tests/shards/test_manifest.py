import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import ShardError
from maskwright.shards.manifest import read_manifest
from tests.shards.helpers import write_prepared


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


def break_version(values: dict[str, Any]) -> None:
    values["version"] = 99


def break_key(values: dict[str, Any]) -> None:
    del values["splits"]["valid"]


def break_dtype(values: dict[str, Any]) -> None:
    values["dtype"] = "uint32"


def break_total(values: dict[str, Any]) -> None:
    values["splits"]["train"]["num_tokens"] += 1


def break_file(values: dict[str, Any]) -> None:
    del values["splits"]["train"]["shards"][0]["files"]["ends"]


def break_vocabulary(values: dict[str, Any]) -> None:
    values["vocab_size"] += 1


def break_dropped(values: dict[str, Any]) -> None:
    values["dropped"] = [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (break_version, "version 99"),
        (break_key, "valid.* is missing"),
        (break_dtype, "not stored as uint32"),
        (break_total, "do not add up"),
        (break_file, "ends.* is missing"),
        (break_vocabulary, "bytes do not hold"),
        (break_dropped, "damaged"),
    ],
)
def test_a_manifest_that_contradicts_itself(change: Any, message: str, tmp_path: Path) -> None:
    write_prepared(tmp_path)
    file = tmp_path / "manifest.json"
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    with pytest.raises(ShardError, match=message):
        read_manifest(tmp_path)
