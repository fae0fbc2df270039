import hashlib
from pathlib import Path

import numpy as np
import pytest

from maskwright.shards import writer
from maskwright.shards.writer import ShardWriter
from tests.shards.helpers import write_shard


def test_the_bytes_are_those_of_the_documentation(tmp_path: Path) -> None:
    info = write_shard(tmp_path, "00000", [([7, 300, 9], [1, 0, 1]), ([8], [1])])
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {
        "00000.tokens": bytes.fromhex("0700 2c01 0900 0800"),
        "00000.ends": bytes.fromhex("0300000000000000 0400000000000000"),
        "00000.starts": bytes.fromhex("0d"),
    }
    assert (info.num_tokens, info.num_documents) == (4, 2)
    for kind, file in info.files.items():
        content = files[f"00000.{kind}"]
        assert (file.num_bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_the_documentation_has_this_example() -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert "07 00  2c 01  09 00  08 00" in text
    assert "03 00 00 00 00 00 00 00  04 00 00 00 00 00 00 00" in text


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    write_shard(tmp_path, "00000", [([70_000], [1])], "uint32")
    assert (tmp_path / "00000.tokens").read_bytes() == bytes.fromhex("70110100")


def test_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "00000", "uint16") as shard:
        shard.add(np.array([65_535], np.uint32), np.ones(1, np.bool_))
        with pytest.raises(ValueError, match="65536 does not fit"):
            shard.add(np.array([65_536], np.uint32), np.ones(1, np.bool_))
        with pytest.raises(ValueError, match="0 tokens"):
            shard.add(np.zeros(0, np.uint32), np.zeros(0, np.bool_))
        with pytest.raises(ValueError, match="1 tokens with 2"):
            shard.add(np.array([1], np.uint32), np.ones(2, np.bool_))


def test_nothing_is_there_before_it_is_whole(tmp_path: Path) -> None:
    shard = ShardWriter(tmp_path, "00000", "uint16")
    shard.add(np.array([1], np.uint32), np.ones(1, np.bool_))
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    shard.close()
    kinds = sorted(path.name for path in tmp_path.iterdir())
    assert kinds == ["00000.ends", "00000.starts", "00000.tokens"]


def test_after_an_error_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 tokens"), ShardWriter(tmp_path, "a", "uint16") as shard:
        shard.add(np.zeros(0, np.uint32), np.zeros(0, np.bool_))
    assert not list(tmp_path.iterdir())


def test_what_is_written_in_pieces_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 40, 50)
    documents = [(generator.integers(0, 99, n), generator.integers(0, 2, n)) for n in lengths]
    plain = [(ids.tolist(), starts.tolist()) for ids, starts in documents]
    whole = write_shard(tmp_path / "whole", "00000", plain)
    monkeypatch.setattr(writer, "_TOKENS_AT_ONCE", 29)
    assert write_shard(tmp_path / "pieces", "00000", plain) == whole
    for kind in ("tokens", "ends", "starts"):
        found = [(tmp_path / each / f"00000.{kind}").read_bytes() for each in ("whole", "pieces")]
        assert found[0] == found[1]
