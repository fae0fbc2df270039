"""Reads the shards of one split as a single run of tokens, memory-mapped and verified on open."""

from functools import cached_property
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


class TokenStore:
    """The tokens of one split, addressed by their position in the split.

    Documents follow one another in the order of the shards; document `d` is the tokens from
    ``document_lengths[:d].sum()`` on. Nothing is read until it is asked for. A pickled store
    holds the path only, and opens the files again where it is unpickled.

    Attributes:
        document_lengths: tokens of each document, int64 [num_documents].
    """

    def __init__(self, folder: Path, split: str, manifest: Manifest) -> None:
        """Use `open`, which checks the files."""
        self.folder = folder
        self.split = split
        self.manifest = manifest
        self.vocab_size = manifest.vocab_size
        self.tokenizer_fingerprint = manifest.tokenizer_fingerprint
        self.info = manifest.splits[split]
        self.num_tokens = self.info.num_tokens
        self.num_documents = self.info.num_documents
        shards = self.info.shards
        dtype = TOKEN_DTYPES[manifest.dtype]
        self._offsets = np.cumsum([0, *(shard.num_tokens for shard in shards)])
        self._tokens = [_map_file(self._path(shard, TOKENS), dtype) for shard in shards]
        self._starts = [_map_file(self._path(shard, STARTS), np.dtype("u1")) for shard in shards]
        self.document_lengths = self._read_document_lengths()

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
        return cls(folder, split, manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenStore.open, (self.folder, self.split, "sizes")

    def _path(self, shard: ShardInfo, kind: str) -> Path:
        return self.folder / self.split / f"{shard.name}.{kind}"

    def _read_document_lengths(self) -> NDArray[np.int64]:
        lengths = [np.zeros(0, np.int64)]
        for shard in self.info.shards:
            ends = _map_file(self._path(shard, ENDS), ENDS_DTYPE).astype(np.int64)
            lengths.append(np.diff(ends, prepend=0))
        return np.concatenate(lengths)

    @cached_property
    def unigram_counts(self) -> NDArray[np.int64]:
        """How often each id occurs in the train split, int64 [vocab_size]."""
        return np.fromfile(self.folder / COUNTS_NAME, "<u8").astype(np.int64)

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger[Any]]:
        """The ids at positions `start` to `stop` (exclusive) of one document; a view."""
        shard, offset = self._locate(start, stop)
        return self._tokens[shard][start - offset : stop - offset]

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether a word begins at each of these positions; a range as for `tokens`."""
        shard, offset = self._locate(start, stop)
        start, stop = start - offset, stop - offset
        first = start // 8
        bits = np.unpackbits(self._starts[shard][first : -(-stop // 8)], bitorder="little")
        return bits[start - 8 * first : stop - 8 * first].view(np.bool_)

    def _locate(self, start: int, stop: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._offsets, start, side="right")) - 1
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"positions {start} to {stop} of {self.num_tokens}")
        if start == stop:
            shard = min(shard, len(self._tokens) - 1)
        elif stop > self._offsets[shard + 1]:
            raise IndexError(f"positions {start} to {stop} are in more than one document")
        return shard, int(self._offsets[shard])


def _map_file(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


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
    ends = _map_file(folder / f"{shard.name}.{ENDS}", ENDS_DTYPE).astype(np.int64)
    if (np.diff(ends, prepend=0) < 1).any() or (len(ends) and ends[-1] != shard.num_tokens):
        raise ShardError(
            f"{folder / shard.name}.{ENDS} is no increasing list of ends up to "
            f"{shard.num_tokens}. Prepare the data again."
        )
