"""Writing of a shard: three files that get their names when they are complete."""

import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.files import flush, replacing_file, writing_file
from maskwright.shards.manifest import (
    ENDS,
    ENDS_DTYPE,
    STARTS,
    TOKEN_DTYPES,
    TOKENS,
    FileInfo,
    ShardInfo,
)

_TOKENS_AT_ONCE = 1 << 20


class ShardWriter:
    """Writer of documents to the shard ``FOLDER/NAME.*``, which appears when it is closed.

    A shard may have any size; at most about a million tokens are in memory. As a context manager,
    it removes its files after an error.
    """

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._name = name
        self._folder = folder
        self._dtype = TOKEN_DTYPES[dtype]
        self._tokens: list[NDArray[Any]] = []
        self._word_starts: list[NDArray[np.bool_]] = []
        self._num_documents = self._num_tokens = self._num_written = 0
        self._ends: list[int] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()
        names = {kind: folder / f"{name}.{kind}" for kind in (TOKENS, ENDS, STARTS)}
        self._files = {kind: _HashedFile(path, self._stack) for kind, path in names.items()}

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, ids: NDArray[Any], word_starts: NDArray[np.bool_]) -> None:
        """Add a document of at least one token; raise ValueError if the dtype cannot hold an id."""
        if not len(ids) or len(ids) != len(word_starts):
            raise ValueError(f"{len(ids)} tokens with {len(word_starts)} word starts")
        if int(ids.max()) > np.iinfo(self._dtype).max:
            raise ValueError(f"id {int(ids.max())} does not fit into {self._dtype}")
        self._tokens.append(ids.astype(self._dtype))
        self._word_starts.append(word_starts)
        self._num_tokens += len(ids)
        self._num_documents += 1
        self._ends.append(self._num_tokens)
        if self._num_tokens - self._num_written >= _TOKENS_AT_ONCE:
            self._write()

    def close(self) -> ShardInfo:
        """Finish the files (flush to disk, rename) and return their description."""
        self._write()
        self._files[STARTS].write(np.packbits(self._word_starts[0], bitorder="little"))
        infos = {kind: file.describe() for kind, file in self._files.items()}
        self._stack.close()
        flush(self._folder)
        return ShardInfo(self._name, self._num_tokens, self._num_documents, infos)

    def _write(self) -> None:
        """Write the buffered tokens and the whole bytes of word starts."""
        self._files[TOKENS].write(np.concatenate([np.zeros(0, self._dtype), *self._tokens]))
        self._files[ENDS].write(np.array(self._ends, ENDS_DTYPE))
        starts = np.concatenate([np.zeros(0, np.bool_), *self._word_starts])
        whole = len(starts) - len(starts) % 8
        self._files[STARTS].write(np.packbits(starts[:whole], bitorder="little"))
        self._tokens, self._ends, self._word_starts = [], [], [starts[whole:]]
        self._num_written = self._num_tokens


class _HashedFile:
    """A file that is hashed while it is written, and gets its name when the `stack` is closed."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = stack.enter_context(writing_file(path))
        self._digest, self._num_bytes = hashlib.sha256(), 0

    def write(self, array: NDArray[Any]) -> None:
        content = array.tobytes()
        self._file.write(content)
        self._digest.update(content)
        self._num_bytes += len(content)

    def describe(self) -> FileInfo:
        return FileInfo(self._num_bytes, self._digest.hexdigest())


def write_array(path: Path, array: NDArray[Any], shared: bool = False) -> FileInfo:
    """Write the bytes of `array` to a file; see `replacing_file` for `shared`."""
    content = np.ascontiguousarray(array).data.cast("B") if array.size else b""
    with replacing_file(path, shared) as temporary:
        temporary.write_bytes(content)
    return FileInfo(len(content), hashlib.sha256(content).hexdigest())
