"""Reads the shards of one split as a single run of tokens, verified on open.

Tokens are read from the files as they are asked for. Mapped into memory they would be no faster
to get at, but every page once touched would count as this process's memory, each mapped shard
would hold a file open, and a file cut short under a run would kill it with SIGBUS.
"""

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import ShardError
from maskwright.files import hash_file
from maskwright.shards.manifest import (
    COUNTS_NAME,
    ENDS,
    ENDS_DTYPE,
    SPLITS,
    STARTS,
    TOKEN_DTYPES,
    TOKENS,
    FileInfo,
    Manifest,
    ShardInfo,
    read_manifest,
)

Verify = Literal["full", "sizes"]

_MOST_OPEN = 128  # files of a store; shells allow a process 1024, and a large corpus has more
_IDS_AT_ONCE = 1 << 22


class TokenStore:
    """The tokens of one split, addressed by their position in the split.

    Documents follow one another in the order of the shards; document `d` is the tokens from
    ``document_lengths[:d].sum()`` on. Nothing is read until it is asked for. A pickled store
    holds the path only, and opens the files again where it is unpickled.

    Attributes:
        document_lengths: tokens of each document, int64 [num_documents].
    """

    def __init__(
        self, folder: Path, split: str, manifest: Manifest, homes: Sequence[Path] | None = None
    ) -> None:
        """Use `open`, which checks the files.

        Args:
            homes: the prepared folder of each shard, where they are not all in `folder`.
        """
        self.folder = folder
        self.split = split
        self.manifest = manifest
        self.vocab_size = manifest.vocab_size
        self.tokenizer_fingerprint = manifest.tokenizer_fingerprint
        self.info = manifest.splits[split]
        self.num_tokens = self.info.num_tokens
        self.num_documents = self.info.num_documents
        shards = self.info.shards
        homes = homes or [folder] * len(shards)
        paths = [home / split / shard.name for home, shard in zip(homes, shards, strict=True)]
        self._offsets = [0, *accumulate(shard.num_tokens for shard in shards)]
        self._dtype = TOKEN_DTYPES[manifest.dtype]
        self._tokens = [f"{path}.{TOKENS}" for path in paths]
        self._starts = [f"{path}.{STARTS}" for path in paths]
        self._open_file = lru_cache(_MOST_OPEN)(_OpenFile)
        self.document_lengths = _read_document_lengths([f"{path}.{ENDS}" for path in paths])

    @classmethod
    def open(cls, folder: Path | str, split: str, verify: Verify = "full") -> "TokenStore":
        """Opens ``FOLDER/SPLIT`` after comparing every file with the manifest.

        Args:
            folder: a prepared folder.
            split: ``train`` or ``valid``.
            verify: ``full`` compares sizes and sha256 sums (about a second a gigabyte), ``sizes``
                only the sizes.

        Raises:
            ShardError: names the file that is missing or differs.
        """
        folder = Path(folder)
        if split not in SPLITS:
            raise ShardError(f"{folder} has no split {split}. Choose {' or '.join(SPLITS)}.")
        manifest = read_manifest(folder)
        check_file(folder / COUNTS_NAME, manifest.unigram_counts, verify)
        for shard in manifest.splits[split].shards:
            check_shard(folder / split, shard, manifest.dtype, verify)
            if verify == "full":
                _check_ids(folder / split / f"{shard.name}.{TOKENS}", manifest)
        return cls(folder, split, manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenStore.open, (self.folder, self.split, "sizes")

    @property
    def name(self) -> str:
        """What to call it beside others."""
        return self.folder.resolve().name

    @cached_property
    def unigram_counts(self) -> NDArray[np.int64]:
        """How often each id occurs in the train split, int64 [vocab_size]."""
        return np.fromfile(self.folder / COUNTS_NAME, "<u8").astype(np.int64)

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger[Any]]:
        """The ids at positions `start` to `stop` (exclusive) of one document; not to be changed.

        Raises:
            ShardError: the file has been damaged since it was opened, or cannot be read.
        """
        shard, offset = self._locate(start, stop)
        if start == stop:
            return np.zeros(0, self._dtype)
        width = self._dtype.itemsize
        file = self._open_file(self._tokens[shard])
        return np.frombuffer(
            file.read((start - offset) * width, (stop - start) * width), self._dtype
        )

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether a word begins at each of these positions; range and errors as for `tokens`."""
        shard, offset = self._locate(start, stop)
        if start == stop:
            return np.zeros(0, np.bool_)
        start, stop = start - offset, stop - offset
        first = start // 8
        packed = self._open_file(self._starts[shard]).read(first, -(-stop // 8) - first)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
        return bits[start - 8 * first : stop - 8 * first].view(np.bool_)

    def _locate(self, start: int, stop: int) -> tuple[int, int]:
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"positions {start} to {stop} of {self.num_tokens}")
        shard = bisect_right(self._offsets, start) - 1
        if start < stop and stop > self._offsets[shard + 1]:
            raise IndexError(f"positions {start} to {stop} are in more than one document")
        return shard, self._offsets[shard]


def _read_document_lengths(paths: Sequence[str]) -> NDArray[np.int64]:
    lengths = [np.zeros(0, np.int64)]
    for path in paths:
        ends = np.fromfile(path, ENDS_DTYPE).astype(np.int64)
        lengths.append(np.diff(ends, prepend=0))
    return np.concatenate(lengths)


class _OpenFile:
    """A file to read parts of, by any thread; closed when nobody holds it any more."""

    _descriptor = -1

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ShardError(f"{path} cannot be read: {error.strerror}.") from None

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, num_bytes: int) -> bytes:
        try:
            content = os.pread(self._descriptor, num_bytes, start)
        except OSError as error:
            raise ShardError(f"{self._path} cannot be read: {error.strerror}.") from None
        if len(content) < num_bytes:
            raise ShardError(
                f"{self._path} ends before byte {start + num_bytes}: it was cut short."
            )
        return content


def check_file(path: Path, info: FileInfo, verify: Verify) -> None:
    """Compares a file with its description.

    Raises:
        ShardError: it is missing or differs.
    """
    remedy = "Prepare the data again."
    try:
        num_bytes = path.stat().st_size
        if num_bytes != info.num_bytes:
            raise ShardError(f"{path} has {num_bytes} bytes and not {info.num_bytes}. {remedy}")
        if verify == "full" and hash_file(path) != info.sha256:
            raise ShardError(f"{path} is damaged: its sha256 is not the manifest's. {remedy}")
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror}. {remedy}") from None


def _check_ids(path: Path, manifest: Manifest) -> None:
    """That no token lies outside the vocabulary, where there is no word embedding for it."""
    with path.open("rb") as file:
        while len(ids := np.fromfile(file, TOKEN_DTYPES[manifest.dtype], _IDS_AT_ONCE)):
            if int(ids.max()) >= manifest.vocab_size:
                raise ShardError(
                    f"{path} holds the id {int(ids.max())}, but vocab_size is "
                    f"{manifest.vocab_size}. Prepare the data again."
                )


def check_shard(folder: Path, shard: ShardInfo, dtype: str, verify: Verify) -> None:
    """Compares the three files of a shard with its description, and with one another.

    Raises:
        ShardError: a file is missing or differs, or the counts do not fit the sizes.
    """
    expected = {
        TOKENS: shard.num_tokens * TOKEN_DTYPES[dtype].itemsize,
        ENDS: shard.num_documents * ENDS_DTYPE.itemsize,
        STARTS: -(-shard.num_tokens // 8),
    }
    for kind, num_bytes in expected.items():
        path = folder / f"{shard.name}.{kind}"
        check_file(path, shard.files[kind], verify)
        if shard.files[kind].num_bytes != num_bytes:
            raise ShardError(
                f"{path} has {shard.files[kind].num_bytes} bytes, which is not what "
                f"{shard.num_tokens} tokens in {shard.num_documents} documents take. "
                "Prepare the data again."
            )
    ends = np.fromfile(folder / f"{shard.name}.{ENDS}", ENDS_DTYPE)
    rises = len(ends) == 0 or (ends[0] > 0 and (ends[1:] > ends[:-1]).all())
    if not rises or (len(ends) and ends[-1] != shard.num_tokens):
        raise ShardError(
            f"{folder / shard.name}.{ENDS} is no increasing list of ends up to "
            f"{shard.num_tokens}. Prepare the data again."
        )
