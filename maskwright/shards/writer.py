"""Writes one shard: three files that appear under their names only when they are whole."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.files import flush, replacing_file
from maskwright.shards.manifest import (
    ENDS,
    ENDS_DTYPE,
    STARTS,
    TOKEN_DTYPES,
    TOKENS,
    FileInfo,
    ShardInfo,
)


class ShardWriter:
    """Collects documents for the shard ``FOLDER/NAME.*`` and writes it on `close`.

    A shard is built in memory, about three bytes a token; what limits it is the caller's choice
    of how much text goes into one.
    """

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._folder = folder
        self._name = name
        self._dtype = TOKEN_DTYPES[dtype]
        self._tokens: list[NDArray[Any]] = []
        self._word_starts: list[NDArray[np.bool_]] = []
        self._ends: list[int] = []
        self._num_tokens = 0

    def add(self, ids: NDArray[Any], word_starts: NDArray[np.bool_]) -> None:
        """Add a document of at least one token.

        Raises:
            ValueError: no token, unequal lengths, or an id that the dtype cannot hold.
        """
        if not len(ids) or len(ids) != len(word_starts):
            raise ValueError(f"{len(ids)} tokens with {len(word_starts)} word starts")
        if int(ids.max()) > np.iinfo(self._dtype).max:
            raise ValueError(f"id {int(ids.max())} does not fit into {self._dtype}")
        self._tokens.append(ids.astype(self._dtype))
        self._word_starts.append(word_starts)
        self._num_tokens += len(ids)
        self._ends.append(self._num_tokens)

    def close(self) -> ShardInfo:
        """Write the files (temporary name, flush to disk, rename) and return their description."""
        self._folder.mkdir(parents=True, exist_ok=True)
        starts = np.concatenate([np.zeros(0, np.bool_), *self._word_starts])
        files = {
            TOKENS: np.concatenate([np.zeros(0, self._dtype), *self._tokens]),
            ENDS: np.array(self._ends, ENDS_DTYPE),
            STARTS: np.packbits(starts, bitorder="little"),
        }
        infos = {
            kind: write_array(self._folder / f"{self._name}.{kind}", array)
            for kind, array in files.items()
        }
        flush(self._folder)
        return ShardInfo(self._name, self._num_tokens, len(self._ends), infos)


def write_array(path: Path, array: NDArray[Any]) -> FileInfo:
    """Write the bytes of `array`; `path` is complete or missing, never partial."""
    content = np.ascontiguousarray(array).data.cast("B") if array.size else b""
    with replacing_file(path) as temporary:
        temporary.write_bytes(content)
    return FileInfo(len(content), hashlib.sha256(content).hexdigest())
