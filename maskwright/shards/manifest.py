"""What a prepared folder holds, and how ``manifest.json`` says it. See docs/shard-format.md.

::

    NAME/
      manifest.json              written last: a folder without it is not finished
      unigram.counts             uint64 [V], how often each id occurs in the train split
      tokenizer/                 tokenizer.json, tokenizer_config.json
      train/00000.tokens         uint16 or uint32 [tokens], ids
      train/00000.ends           uint64 [documents], where each document ends, in tokens
      train/00000.starts         bits [tokens], least significant first: does a word begin here
      train/00001.tokens ...
      valid/...

All numbers are little endian.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from maskwright.errors import ShardError
from maskwright.files import write_json

FORMAT = "maskwright-shards"
VERSION = 1
MANIFEST_NAME = "manifest.json"
COUNTS_NAME = "unigram.counts"
TOKENIZER_NAME = "tokenizer"
SPLITS = ("train", "valid")

TOKENS, ENDS, STARTS = "tokens", "ends", "starts"
ENDS_DTYPE = np.dtype("<u8")
TOKEN_DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


def choose_dtype(vocab_size: int) -> str:
    """``uint16`` if every id fits, else ``uint32``."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


@dataclass(frozen=True)
class FileInfo:
    """One file: its size in bytes and its sha256 (hexadecimal)."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardInfo:
    """One shard: three files ``NAME.tokens``, ``NAME.ends`` and ``NAME.starts``."""

    name: str
    num_tokens: int
    num_documents: int
    files: dict[str, FileInfo]


@dataclass(frozen=True)
class SplitInfo:
    """One split: its shards in order, and what its text amounts to.

    `num_bytes` counts the text as UTF-8, `num_words` its parts between whitespace.
    """

    num_tokens: int
    num_documents: int
    num_characters: int
    num_bytes: int
    num_words: int
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class Manifest:
    """All about a prepared folder but the tokens.

    `fingerprint` identifies the input (text and configuration), so that the same is not prepared
    twice; `source` describes it for a reader: paths, configuration, seed.
    """

    vocab_size: int
    dtype: str
    tokenizer_fingerprint: str
    fingerprint: str
    source: dict[str, Any]
    splits: dict[str, SplitInfo]
    unigram_counts: FileInfo
    dropped: dict[str, int]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes ``manifest.json`` by temporary name and rename."""
    write_json(folder / MANIFEST_NAME, {"format": FORMAT, "version": VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> Manifest:
    """Reads ``manifest.json``; the files that it lists are not looked at.

    Raises:
        ShardError: not there, damaged, or of another version.
    """
    file = folder / MANIFEST_NAME
    if not file.is_file():
        raise ShardError(
            f"{folder} holds no {MANIFEST_NAME}: it is no prepared data, or unfinished. "
            "Run `maskwright prepare` with this --out."
        )
    remedy = f"Remove {folder} and prepare the data again."
    try:
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if values.pop("format") != FORMAT:
            raise ValueError(f"format is not {FORMAT}")
        version = values.pop("version")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ShardError(f"{file} is damaged: {describe(error)}. {remedy}") from None
    if version != VERSION:
        raise ShardError(
            f"{file} has version {version}, this maskwright reads version {VERSION}. {remedy}"
        )
    try:
        return parse_manifest(values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ShardError(f"{file} is damaged: {describe(error)}. {remedy}") from None


def describe(error: Exception) -> str:
    """An error in one line; a KeyError says which key is missing."""
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())


def parse_manifest(values: Mapping[str, Any]) -> Manifest:
    """A manifest from plain values; ValueError, KeyError or TypeError if they are not one."""
    vocab_size, dtype = int(values["vocab_size"]), str(values["dtype"])
    if dtype != choose_dtype(vocab_size):
        raise ValueError(f"{vocab_size} ids are not stored as {dtype}")
    counts = FileInfo(**values["unigram_counts"])
    if counts.num_bytes != 8 * vocab_size:
        raise ValueError(f"{counts.num_bytes} bytes do not hold {vocab_size} counts")
    return Manifest(
        vocab_size=vocab_size,
        dtype=dtype,
        tokenizer_fingerprint=str(values["tokenizer_fingerprint"]),
        fingerprint=str(values["fingerprint"]),
        source=dict(values["source"]),
        splits={split: _parse_split(values["splits"][split]) for split in SPLITS},
        unigram_counts=counts,
        dropped={str(reason): int(count) for reason, count in values["dropped"].items()},
    )


def _parse_split(values: Mapping[str, Any]) -> SplitInfo:
    shards = tuple(parse_shard(shard) for shard in values["shards"])
    split = SplitInfo(**cast(dict[str, Any], {**values, "shards": shards}))
    for total, added in (
        (split.num_tokens, sum(shard.num_tokens for shard in shards)),
        (split.num_documents, sum(shard.num_documents for shard in shards)),
    ):
        if total != added:
            raise ValueError(f"the shards do not add up ({added} and not {total})")
    return split


def parse_shard(values: Mapping[str, Any]) -> ShardInfo:
    """A shard's description from plain values; errors as in `parse_manifest`."""
    files = {kind: FileInfo(**values["files"][kind]) for kind in (TOKENS, ENDS, STARTS)}
    return ShardInfo(**cast(dict[str, Any], {**values, "files": files}))
