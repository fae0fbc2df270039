from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from maskwright.preparation.chunks import Chunk
from maskwright.preparation.encode import encode_chunk
from maskwright.preparation.encode_chunks import encode_chunks
from maskwright.preparation.engines import LocalEngine
from maskwright.preparation.process_pool import count_cores
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer

TEXTS = ["the cat sat", "on the mat,", "the end."]


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 5, TokenizerConfig(kind="character", min_frequency=1))


def chunk(texts: list[str], index: int = 0) -> Chunk:
    return Chunk("train", index, [text.encode() for text in texts])


def test_a_chunk_becomes_a_shard(tmp_path: Path) -> None:
    encoded = encode_chunk(chunk([*TEXTS, "\n", ""]), tmp_path, tokenizer())
    assert encoded.shard.num_documents == 4  # a newline is a character of this tokenizer
    assert encoded.num_without_tokens == 1
    assert (encoded.num_characters, encoded.num_bytes, encoded.num_words) == (31, 31, 8)
    ids = np.fromfile(tmp_path / "train" / "00000.tokens", "<u2")
    assert tokenizer().decode(ids[:11]) == TEXTS[0]
    assert not encoded.reused


def test_a_finished_shard_is_kept(tmp_path: Path) -> None:
    first = encode_chunk(chunk(TEXTS), tmp_path, tokenizer())
    written = (tmp_path / "train" / "00000.tokens").stat().st_mtime_ns
    again = encode_chunk(chunk(TEXTS), tmp_path, tokenizer())
    assert again.reused
    assert again.shard == first.shard
    assert (tmp_path / "train" / "00000.tokens").stat().st_mtime_ns == written


@pytest.mark.parametrize("suffix", ["tokens", "ends", "starts", "done"])
def test_a_damaged_shard_is_made_again(suffix: str, tmp_path: Path) -> None:
    first = encode_chunk(chunk(TEXTS), tmp_path, tokenizer())
    path = tmp_path / "train" / f"00000.{suffix}"
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"zzz")
    again = encode_chunk(chunk(TEXTS), tmp_path, tokenizer())
    assert not again.reused
    assert again == first
    assert path.read_bytes() == content


def test_another_text_or_tokenizer_is_made_again(tmp_path: Path) -> None:
    encode_chunk(chunk(TEXTS), tmp_path, tokenizer())
    assert not encode_chunk(chunk(TEXTS[:2]), tmp_path, tokenizer()).reused
    other = train_tokenizer(["xyz"] * 5, TokenizerConfig(kind="character"))
    assert not encode_chunk(chunk(TEXTS[:2]), tmp_path, other).reused


def test_chunks_are_read_as_they_are_needed(tmp_path: Path) -> None:
    num_read = 0

    def read_chunks() -> Iterator[Chunk]:
        nonlocal num_read
        for index in range(10):
            num_read += 1
            yield chunk(TEXTS, index)

    tokenizer().save(tmp_path / "tokenizer")
    encoded = encode_chunks(read_chunks(), tmp_path, LocalEngine(1))
    next(encoded)
    assert num_read <= 3
    assert len(list(encoded)) == 9


def test_there_is_a_core() -> None:
    assert count_cores() >= 1
