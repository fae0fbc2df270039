"""Reading of the shards of one split as one sequence of tokens.

Files are verified on open, or after each download. They are read, not memory-mapped: mapping is no
faster, every page once read would count as this process's memory, each mapped shard would keep a
file open, and a file that is truncated during a run would kill the process with SIGBUS.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import ShardError
from maskwright.shards.checks import REMEDY, Verify, check_known
from maskwright.shards.folder import File, Mirror, PreparedFolder, fetch_ahead, open_folder
from maskwright.shards.manifest import (
    COUNTS_NAME,
    ENDS,
    ENDS_DTYPE,
    SPLITS,
    STARTS,
    TOKEN_DTYPES,
    TOKENS,
    Manifest,
)

_MOST_OPEN = 128  # open files of a store; the usual limit of a process is 1024


class TokenStore:
    """The tokens of one split, addressed by their position in the split.

    Documents are in the order of the shards; document `d` begins at position
    ``document_lengths[:d].sum()``. Tokens are read on request. A pickled store contains only its
    path, and opens the files again when it is unpickled::

        store = TokenStore.open("data/mine", "train")
        first = store.tokens(0, int(store.document_lengths[0]))  # ids of the first document

    Attributes:
        document_lengths: number of tokens of each document, int64 [num_documents].
    """

    def __init__(self, folders: Sequence[PreparedFolder], split: str, manifest: Manifest) -> None:
        """Use `open`, which checks the files.

        Args:
            folders: the folders whose shards are concatenated; one, except for a `ConcatStore`.
            manifest: the manifest of the concatenation.
        """
        self.folders = folders
        self.folder = folders[0].path
        self.split = split
        self.manifest = manifest
        self.vocab_size = manifest.vocab_size
        self.tokenizer_fingerprint = manifest.tokenizer_fingerprint
        self.info = manifest.splits[split]
        self.num_tokens = self.info.num_tokens
        self.num_documents = self.info.num_documents
        shards = self.info.shards
        self._offsets = [0, *accumulate(shard.num_tokens for shard in shards)]
        self._dtype = TOKEN_DTYPES[manifest.dtype]
        self._tokens = _list_files(folders, split, TOKENS)
        self._starts = _list_files(folders, split, STARTS)
        self._open_file = lru_cache(_MOST_OPEN)(_OpenFile)
        self.document_lengths = _read_document_lengths(_list_files(folders, split, ENDS))

    @classmethod
    def open(cls, folder: Path | str, split: str, verify: Verify = "full") -> "TokenStore":
        """Open ``FOLDER/SPLIT`` after comparing every file with the manifest.

        Args:
            folder: a prepared folder, or its URL (``s3://``, ``gs://``, ``hf://``, ``https://``;
                extra `remote`). Remote files are downloaded and compared when they are needed.
            split: ``train`` or ``valid``.
            verify: ``full`` compares sizes and sha256 sums (about a second a gigabyte), ``sizes``
                only the sizes.

        Raises:
            ShardError: a file is missing, differs, or cannot be downloaded; the error names it.
        """
        if split not in SPLITS:
            raise ShardError(f"{folder} has no split {split}. Choose {' or '.join(SPLITS)}.")
        prepared = open_folder(folder)
        prepared.check(split, verify)
        return cls([prepared], split, prepared.manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenStore.open, (self.folder, self.split, "sizes")

    @property
    def name(self) -> str:
        """A name that distinguishes the store from others."""
        return self.folders[0].name

    @property
    def is_remote(self) -> bool:
        """Whether files are downloaded when they are needed."""
        return any(isinstance(folder, Mirror) for folder in self.folders)

    def fetch_ahead(self, positions: Iterable[NDArray[np.int64]]) -> None:
        """Start downloading the missing files of remote folders.

        Args:
            positions: token positions in the order of reading, in arrays [n]. Files without any of
                them are downloaded last.

        Raises:
            ShardError: the cache has not enough space.
        """
        fetch_ahead(self.folders, self.split, self._order_files(positions))

    def _order_files(self, positions: Iterable[NDArray[np.int64]]) -> Iterator[File]:
        """Yield the files of all shards in the order in which `positions` need them."""
        listed = set[int]()
        for shards in chain(map(self._find_shards, positions), [range(len(self._tokens))]):
            for shard in shards:
                if shard not in listed:
                    listed.add(shard)
                    yield self._tokens[shard]
                    yield self._starts[shard]
            if len(listed) == len(self._tokens):
                return

    def _find_shards(self, positions: NDArray[np.int64]) -> list[int]:
        return (np.searchsorted(self._offsets, positions, side="right") - 1).tolist()

    @cached_property
    def unigram_counts(self) -> NDArray[np.int64]:
        """The count of each id in the train split, int64 [vocab_size]."""
        return np.fromfile(self.folders[0].place(COUNTS_NAME), "<u8").astype(np.int64)

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids at positions `start` to `stop` (exclusive) of one document; read-only.

        Raises:
            ShardError: the file has been damaged since it was opened, or cannot be read.
        """
        shard, offset = self._locate(start, stop)
        if start == stop:
            return np.zeros(0, self._dtype)
        width = self._dtype.itemsize
        file = self._open_file(*self._tokens[shard])
        content = file.read((start - offset) * width, (stop - start) * width)
        ids = np.frombuffer(content, self._dtype)
        check_known(file.name, ids, self.vocab_size)  # it may be damaged since then
        return ids

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return True for each position where a word begins; range and errors as for `tokens`."""
        shard, offset = self._locate(start, stop)
        if start == stop:
            return np.zeros(0, np.bool_)
        start, stop = start - offset, stop - offset
        first = start // 8
        packed = self._open_file(*self._starts[shard]).read(first, -(-stop // 8) - first)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
        return bits[start - 8 * first : stop - 8 * first].view(np.bool_)

    def _locate(self, start: int, stop: int) -> tuple[int, int]:
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"positions {start} to {stop} of {self.num_tokens}")
        shard = bisect_right(self._offsets, start) - 1
        if start < stop and stop > self._offsets[shard + 1]:
            raise IndexError(f"positions {start} to {stop} are in more than one document")
        return shard, self._offsets[shard]


def _list_files(folders: Sequence[PreparedFolder], split: str, kind: str) -> list[File]:
    """Return the files of one kind of all shards."""
    return [
        (folder, f"{split}/{shard.name}.{kind}")
        for folder in folders
        for shard in folder.manifest.splits[split].shards
    ]


def _read_document_lengths(files: Iterable[File]) -> NDArray[np.int64]:
    lengths = [np.zeros(0, np.int64)]
    for folder, name in files:
        ends = np.fromfile(folder.place(name), ENDS_DTYPE).astype(np.int64)
        lengths.append(np.diff(ends, prepend=0))
    return np.concatenate(lengths)


class _OpenFile:
    """A file whose parts any thread may read; closed when there are no more references."""

    _descriptor = -1

    def __init__(self, folder: PreparedFolder, name: str) -> None:
        self.name = folder.describe(name)
        try:
            self._descriptor = os.open(folder.place(name), os.O_RDONLY)
        except OSError as error:
            raise ShardError(f"{self.name} cannot be read: {error.strerror}.") from None

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, num_bytes: int) -> bytes:
        try:
            content = os.pread(self._descriptor, num_bytes, start)
        except OSError as error:
            raise ShardError(f"{self.name} cannot be read: {error.strerror}.") from None
        if len(content) < num_bytes:
            end = start + num_bytes
            raise ShardError(f"{self.name} ends before byte {end}: it is truncated. {REMEDY}")
        return content
