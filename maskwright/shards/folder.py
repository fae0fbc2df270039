"""A prepared folder on this machine, and the checks of its files against its manifest."""

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
    STARTS,
    TOKEN_DTYPES,
    TOKENS,
    FileInfo,
    Manifest,
    ShardInfo,
    read_manifest,
)

Verify = Literal["full", "sizes"]

_IDS_AT_ONCE = 1 << 22
REMEDY = "Prepare the data again."


class PreparedFolder:
    """A local prepared folder.

    Attributes:
        path: the path of the folder.
        name: a name that distinguishes it from other folders.

    Raises:
        ShardError: the manifest is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        self.manifest = read_manifest(path)

    def check(self, split: str, verify: Verify) -> None:
        """Compare the files of a split, and the counts, with the manifest.

        Raises:
            ShardError: a file is missing or differs; the error names it.
        """
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
    """Raise ShardError unless every id, [n] with n > 0, is in the vocabulary: has an embedding.

    Args:
        name: the name of the file, for the message.
    """
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
    """Raise ShardError unless file sizes match the counts, and ends rise to the number of tokens.

    Reads only the file of document ends.
    """
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
