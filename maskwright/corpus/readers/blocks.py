"""Bytes of a file in blocks of bounded size, decompressed by suffix."""

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import zstandard

from maskwright.corpus.formats import Compression
from maskwright.errors import CorpusError

BLOCK_BYTES = 1 << 20
# So few bytes of zstandard unfold to 8 MB at most (runs of 128 kB in four bytes each).
_ZSTD_INPUT_BYTES = 256
_ZSTD_MAGICS = tuple(
    magic.to_bytes(4, "little") for magic in (0xFD2FB528, *range(0x184D2A50, 0x184D2A60))
)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def read_blocks(path: Path | None, compression: Compression, name: str) -> Iterator[bytes]:
    """The decompressed bytes of `path` (None: standard input); only the last block is short.

    Raises:
        CorpusError: the file cannot be read, or its compressed data is damaged or cut off.
    """
    try:
        if path is None:
            yield from _read_file(sys.stdin.buffer)
            return
        with _open(path, compression) as file:
            yield from _unzstd(file) if compression == ".zst" else _read_file(file)
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
        raise _damaged(name, error) from None
    except OSError as error:
        if error.errno is None:  # bz2 reports damage so
            raise _damaged(name, error) from None
        raise CorpusError(f"{name} cannot be read: {error.strerror}.") from None


def _damaged(name: str, error: Exception) -> CorpusError:
    reason = " ".join(str(error).split()).rstrip(".")
    return CorpusError(f"{name} cannot be decompressed: {reason}. Fetch or copy it again.")


def _open(path: Path, compression: Compression) -> AbstractContextManager[_Readable]:
    if compression == ".gz":
        return gzip.open(path)
    if compression == ".bz2":
        return bz2.open(path)
    if compression == ".xz":
        return lzma.open(path)
    return path.open("rb")


def _read_file(file: _Readable) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _unzstd(file: _Readable) -> Iterator[bytes]:
    """Unlike zstandard's own reader this one notices a cut-off file."""
    ready = bytearray()
    frame = None
    rest = b""
    while piece := rest + file.read(_ZSTD_INPUT_BYTES - len(rest)):
        if frame is None:
            if not piece.startswith(_ZSTD_MAGICS):
                raise zstandard.ZstdError("not a zstandard frame")
            frame = zstandard.ZstdDecompressor().decompressobj()
        ready += frame.decompress(piece)
        rest = b""
        if frame.eof:
            rest, frame = frame.unused_data, None
        while len(ready) >= BLOCK_BYTES:
            yield bytes(ready[:BLOCK_BYTES])
            del ready[:BLOCK_BYTES]
    if frame is not None:
        raise EOFError("the file ends in the middle of a frame")
    if ready:
        yield bytes(ready)
