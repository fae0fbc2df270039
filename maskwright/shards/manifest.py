"""The files of a prepared folder, ``manifest.json``, which describes them, and their checks::

    NAME/
      manifest.json              written last: a folder without it is not finished
      unigram.counts             uint64 [V], how often each id occurs in the train split
      tokenizer/                 tokenizer.json, tokenizer_config.json
      train/00000.tokens         uint16 or uint32 [tokens], ids
      train/00000.ends           uint64 [documents], end position of each document, in tokens
      train/00000.starts         bits [tokens], least significant first: 1 if a word begins here
      train/00001.tokens ...
      valid/...

All numbers are little endian. See docs/formats.md.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskwright.config import MAX_VOCAB_SIZE
from maskwright.errors import ShardError, make_line, show_value
from maskwright.files import JsonObject, hash_file, read_json, write_json

FORMAT = "maskwright-shards"
VERSION = 1
MANIFEST_NAME = "manifest.json"
COUNTS_NAME = "unigram.counts"
TOKENIZER_NAME = "tokenizer"
SPLITS = ("train", "valid")

_SHARD_NAME = re.compile(r"[0-9]{5,12}")  # digits only, so that it is not a path out of the folder
_MAX_COUNT = (1 << 53) - 1  # the largest count that a JSON number represents exactly

TOKENS, ENDS, STARTS = "tokens", "ends", "starts"
ENDS_DTYPE = np.dtype("<u8")
TOKEN_DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


def choose_dtype(vocab_size: int) -> str:
    """Return ``uint16`` if every id fits, else ``uint32``."""
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
    """One split: its shards in order, and the sizes of its text.

    `num_bytes` is the size of the text in UTF-8, `num_words` its number of whitespace-split words.
    """

    num_tokens: int
    num_documents: int
    num_characters: int
    num_bytes: int
    num_words: int
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class Manifest:
    """The description of a prepared folder.

    `fingerprint` identifies the input; `source` describes it for people: paths, settings, seed.
    """

    vocab_size: int
    dtype: str
    tokenizer_fingerprint: str
    fingerprint: str
    source: JsonObject
    splits: dict[str, SplitInfo]
    unigram_counts: FileInfo
    dropped: dict[str, int]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` by temporary name and rename."""
    write_json(folder / MANIFEST_NAME, {"format": FORMAT, "version": VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> Manifest:
    """Read ``manifest.json``; the files that it lists are not checked.

    Raises:
        ShardError: the manifest is missing, damaged, or of another version.
    """
    file = folder / MANIFEST_NAME
    if not folder.exists():
        raise ShardError(
            f"{folder} does not exist. Check the path, or prepare text into it: "
            f"maskwright prepare TEXT --out {folder}"
        )
    if not file.is_file():
        raise ShardError(
            f"{folder} has no {MANIFEST_NAME}: it is not prepared data, or not finished. "
            "Run `maskwright prepare` with this --out."
        )
    remedy = f"Remove {folder} and prepare the data again."
    try:
        values: JsonObject = read_json(file)
        if values.pop("format") != FORMAT:
            raise ValueError(f"format is not {FORMAT}")
        if (version := values.pop("version")) != VERSION:
            raise ShardError(
                f"{file} has version {version}, but this maskwright reads version {VERSION}. "
                f"{remedy}"
            )
        return parse_manifest(values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ShardError(f"{file} is damaged: {reason}. {remedy}") from None


def parse_manifest(values: Mapping[str, Any]) -> Manifest:
    """Return a manifest from plain values; raise ValueError, KeyError or TypeError if invalid."""
    counts = _build(FileInfo, values["unigram_counts"])
    manifest = _build(
        Manifest,
        values,
        source=dict(values["source"]),
        splits={split: _parse_split(values["splits"][split]) for split in SPLITS},
        unigram_counts=counts,
        dropped={make_line(reason): _count(n, reason) for reason, n in values["dropped"].items()},
    )
    vocab_size, dtype = manifest.vocab_size, manifest.dtype
    if not 0 < vocab_size <= MAX_VOCAB_SIZE:
        raise ValueError(f"vocab_size = {vocab_size} must be between 1 and {MAX_VOCAB_SIZE}")
    if dtype != choose_dtype(vocab_size):
        raise ValueError(f"{vocab_size} ids are not stored as {dtype}")
    if counts.num_bytes != 8 * vocab_size:
        raise ValueError(f"{counts.num_bytes} bytes do not hold {vocab_size} counts")
    return manifest


def _parse_split(values: Mapping[str, Any]) -> SplitInfo:
    shards = tuple(parse_shard(shard) for shard in values["shards"])
    split = _build(SplitInfo, values, shards=shards)
    for field in ("num_tokens", "num_documents"):
        total, added = getattr(split, field), sum(getattr(shard, field) for shard in shards)
        if total != added:
            raise ValueError(f"the shards do not add up: {added}, not {total}")
    return split


def parse_shard(values: Mapping[str, Any]) -> ShardInfo:
    """Return a shard's description from plain values; errors as in `parse_manifest`."""
    files = {kind: _build(FileInfo, values["files"][kind]) for kind in (TOKENS, ENDS, STARTS)}
    shard = _build(ShardInfo, values, files=files)
    if not _SHARD_NAME.fullmatch(shard.name):
        raise ValueError(f"{shard.name} is not a shard name, which is a number of 5 digits or more")
    if not bool(shard.num_tokens) <= shard.num_documents <= shard.num_tokens:
        raise ValueError(f"{shard.num_documents} documents cannot have {shard.num_tokens} tokens")
    return shard


_Described = TypeVar("_Described", FileInfo, ShardInfo, SplitInfo, Manifest)


def _build(cls: type[_Described], values: Mapping[str, Any], **parsed: Any) -> _Described:
    """Build a dataclass from plain values after checking the types of counts and texts."""
    given: JsonObject = {**values, **parsed}
    for field in fields(cls):
        if field.type is int:
            _count(given[field.name], field.name)
        elif field.type is str and not isinstance(given[field.name], str):
            raise ValueError(f"{field.name} = {show_value(given[field.name])} is not text")
    return cls(**given)


def _count(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise ValueError(f"{name} = {show_value(value)} is not a count")
    return value


Verify = Literal["full", "sizes"]

_IDS_AT_ONCE = 1 << 22
REMEDY = "Prepare the data again."


class PreparedFolder:
    """A local prepared folder; raises ShardError if its manifest is missing or damaged.

    `name` distinguishes it from other folders.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        self.manifest = read_manifest(path)

    def check(self, split: str, verify: Verify) -> None:
        """Raise ShardError unless the files of a split, and the counts, match the manifest."""
        check_file(self.path / COUNTS_NAME, self.manifest.unigram_counts, verify)
        for shard in self.manifest.splits[split].shards:
            for kind in (TOKENS, ENDS, STARTS):
                path = self.path / split / f"{shard.name}.{kind}"
                check_file(path, shard.files[kind], verify)
            check_ends(self.path / split, shard, self.manifest.dtype)
            if verify == "full":
                check_ids(self.path / split / f"{shard.name}.{TOKENS}", self.manifest)

    def place(self, name: str) -> Path:
        """Return the path of a file in the folder, given as ``train/00000.tokens``."""
        return self.path / name

    def describe(self, name: str) -> str:
        """Return the name of the file that `place` returns, for messages."""
        return str(self.path / name)


def check_file(path: Path, info: FileInfo, verify: Verify) -> None:
    """Raise ShardError unless a file exists and matches its description."""
    try:
        num_bytes = path.stat().st_size
        if num_bytes != info.num_bytes:
            raise ShardError(f"{path} has {num_bytes} bytes, not {info.num_bytes}. {REMEDY}")
        if verify == "full" and hash_file(path) != info.sha256:
            raise ShardError(f"{path} is damaged: its sha256 is not the manifest's. {REMEDY}")
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror}. {REMEDY}") from None


def check_known(name: str, ids: NDArray[np.unsignedinteger[Any]], vocab_size: int) -> None:
    """Raise ShardError unless every id of file `name`, [n] with n > 0, has an embedding."""
    if (highest := int(ids.max())) >= vocab_size:
        raise ShardError(
            f"{name} is damaged: it contains the id {highest}, but vocab_size is {vocab_size}. "
            f"{REMEDY}"
        )


def check_ids(path: Path, manifest: Manifest) -> None:
    """Raise ShardError unless every token id of a file is in the vocabulary."""
    with path.open("rb") as file:
        while len(ids := np.fromfile(file, TOKEN_DTYPES[manifest.dtype], _IDS_AT_ONCE)):
            check_known(str(path), ids, manifest.vocab_size)


def check_ends(folder: Path, shard: ShardInfo, dtype: str) -> None:
    """Raise ShardError unless file sizes match the counts, and ends rise to the tokens."""
    expected = {
        TOKENS: shard.num_tokens * TOKEN_DTYPES[dtype].itemsize,
        ENDS: shard.num_documents * ENDS_DTYPE.itemsize,
        STARTS: -(-shard.num_tokens // 8),
    }
    for kind, num_bytes in expected.items():
        if shard.files[kind].num_bytes != num_bytes:
            raise ShardError(
                f"{folder / shard.name}.{kind} has {shard.files[kind].num_bytes} bytes, which does "
                f"not match {shard.num_tokens} tokens in {shard.num_documents} documents. "
                f"{REMEDY}"
            )
    ends = np.fromfile(folder / f"{shard.name}.{ENDS}", ENDS_DTYPE)
    rises = len(ends) == 0 or (ends[0] > 0 and (ends[1:] > ends[:-1]).all())
    if not rises or (len(ends) and ends[-1] != shard.num_tokens):
        raise ShardError(
            f"{folder / shard.name}.{ENDS} is not an increasing list of ends up to "
            f"{shard.num_tokens}. {REMEDY}"
        )
