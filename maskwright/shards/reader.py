"""Reading of the shards of one split as one sequence of tokens.

Files are verified on open, or after each download. They are read, not memory-mapped: mapping is no
faster, every page once read would count as this process's memory, each mapped shard would keep a
file open, and a file that is truncated during a run would kill the process with SIGBUS.
"""

import hashlib
import os
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.console import tell
from maskwright.errors import ShardError
from maskwright.shards.manifest import (
    COUNTS_NAME,
    ENDS,
    ENDS_DTYPE,
    REMEDY,
    SPLITS,
    STARTS,
    TOKEN_DTYPES,
    TOKENS,
    FileInfo,
    Manifest,
    PreparedFolder,
    SplitInfo,
    Verify,
    check_known,
    read_manifest,
)
from maskwright.shards.remote import AT_ONCE, Mirror, open_folder

_MAX_OPEN = 128  # open files of a store; the usual limit of a process is 1024

File = tuple[PreparedFolder, str]  # a folder, and the name of a file in it


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
        """Use `open`, which checks the files. Only a `ConcatStore` has several folders, and a
        `manifest` of all.
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
        self._open_file = lru_cache(_MAX_OPEN)(_OpenFile)
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
        """Start downloading the missing files of remote folders, in threads.

        A file that is needed sooner is downloaded at once. A failed download is tried again when
        the file is needed, and raises then if it fails again.

        Args:
            positions: token positions in the order of reading, in arrays [n]. Files without any of
                them are downloaded last.
        """
        mirrors, what = list[Mirror](), list[str]()
        for mirror in self.folders:
            if isinstance(mirror, Mirror) and (sizes := mirror.find_missing(self.split)):
                mirrors.append(mirror)
                what.append(f"{sum(sizes.values()) / 1e6:,.1f} MB of {mirror.url}/{self.split}")
                files = f"({len(sizes):,} files) to {mirror.path}"
                tell(f"downloading {what[-1]} {files} in the background")
        if mirrors:
            _fetch(self._order_files(positions), mirrors, " and ".join(what))

    def _order_files(self, positions: Iterable[NDArray[np.int64]]) -> Iterator[File]:
        """Yield the files of all shards in the order in which `positions` need them."""
        left = dict.fromkeys(range(len(self._tokens)))
        for some in positions:
            for shard in np.searchsorted(self._offsets, some, side="right") - 1:
                if int(shard) in left:
                    del left[int(shard)]
                    yield from (self._tokens[shard], self._starts[shard])
            if not left:
                return
        for shard in left:
            yield from (self._tokens[shard], self._starts[shard])

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


def _fetch(files: Iterator[File], mirrors: Sequence[Mirror], what: str) -> None:
    """Download files in order, in daemon threads, so the program may end before they do."""
    begun, turn, failed = time.monotonic(), threading.Lock(), list[File]()
    left = AT_ONCE

    def work() -> None:
        nonlocal left
        while True:
            with turn:
                if (file := next(files, None)) is None:
                    left -= 1
                    is_last = not left
                    break
            try:
                file[0].place(file[1])
            except ShardError:
                failed.append(file)
        if is_last:
            seconds, retries = time.monotonic() - begun, sum(one.num_retries for one in mirrors)
            lost = f", {len(failed):,} files could not be downloaded" if failed else ""
            tell(f"downloaded {what} in {seconds:,.1f} seconds, {retries:,} retries{lost}")

    for _ in range(AT_ONCE):
        threading.Thread(target=work, daemon=True).start()


def _list_files(folders: Sequence[PreparedFolder], split: str, kind: str) -> list[File]:
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


class ConcatStore(TokenStore):
    """One split of several prepared folders with the same tokenizer, concatenated.

    Args:
        stores: the stores by name.
        passes: the passes of training over each store; empty: one each.

    `num_documents_each` are the documents of each store; `folder` is that of the first.
    """

    def __init__(self, stores: Mapping[str, TokenStore], passes: Sequence[float] = ()) -> None:
        self.stores, self.passes = dict(stores), tuple(passes) or (1.0,) * len(stores)
        first = next(iter(stores.values()))
        folders = [folder for store in stores.values() for folder in store.folders]
        manifest = concat_manifests({name: store.manifest for name, store in stores.items()})
        super().__init__(folders, first.split, manifest)
        self.num_documents_each = tuple(store.num_documents for store in stores.values())
        self._ends = [*accumulate(store.num_tokens for store in stores.values())]

    def __reduce__(self) -> tuple[Any, ...]:
        return ConcatStore, (self.stores, self.passes)

    @property
    def name(self) -> str:
        return " + ".join(store.name for store in self.stores.values())

    @cached_property
    def unigram_counts(self) -> NDArray[np.int64]:
        """The count of each id in an epoch over all stores, int64 [vocab_size]."""
        counts = zip(self.stores.values(), self.passes, strict=True)
        total = sum(store.unigram_counts * times for store, times in counts)
        return np.rint(total).astype(np.int64)

    def source_of(self, position: int) -> str:
        """Return the name of the store that contains the token at `position`."""
        return [*self.stores][bisect_right(self._ends, position)]


def concat_manifests(manifests: Mapping[str, Manifest]) -> Manifest:
    """Return a manifest (not a file) for the concatenation of these folders."""
    parts = [*manifests.values()]
    paths = [str(path) for part in parts for path in part.source.get("paths", [])]
    described = {
        name: {"fingerprint": part.fingerprint, **part.source} for name, part in manifests.items()
    }
    return Manifest(
        vocab_size=parts[0].vocab_size,
        dtype=parts[0].dtype,
        tokenizer_fingerprint=parts[0].tokenizer_fingerprint,
        fingerprint=_hash([part.fingerprint for part in parts]),
        source={"paths": paths, "sources": described},
        splits={split: _join_splits([part.splits[split] for part in parts]) for split in SPLITS},
        unigram_counts=FileInfo(
            parts[0].unigram_counts.num_bytes, _hash([part.unigram_counts.sha256 for part in parts])
        ),
        dropped=dict(sum((Counter(part.dropped) for part in parts), Counter[str]())),
    )


def fingerprint_folders(folders: Mapping[str, Path]) -> str:
    """Return the fingerprint of the input of one folder, or of several concatenated ones.

    Raises:
        ShardError: a folder is missing or damaged.
    """
    found = [read_manifest(folder).fingerprint for folder in folders.values()]
    return found[0] if len(found) == 1 else _hash(found)


def _join_splits(parts: Sequence[SplitInfo]) -> SplitInfo:
    names = [field.name for field in fields(SplitInfo) if field.name != "shards"]
    totals = {name: sum(getattr(part, name) for part in parts) for name in names}
    return SplitInfo(**totals, shards=tuple(shard for part in parts for shard in part.shards))


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
