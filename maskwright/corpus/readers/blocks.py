"""Bytes of a file in blocks of bounded size, decompressed by suffix."""

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from maskwright.corpus.formats import Compression
from maskwright.corpus.readers.expansion import Expansion
from maskwright.errors import CorpusError

BLOCK_BYTES = 1 << 20
_INPUT_BYTES = 1 << 16
# What a decompressor may take; the strongest usual settings (xz -9, zstd -19) need a third of it.
MAX_DECOMPRESSOR_BYTES = 256 << 20
# So few bytes of zstandard unfold to 8 MB at most (runs of 128 kB in four bytes each).
_ZSTD_INPUT_BYTES = 256
_ZSTD_MAGICS = tuple(
    magic.to_bytes(4, "little") for magic in (0xFD2FB528, *range(0x184D2A50, 0x184D2A60))
)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Decompressor(Protocol):
    """One compressed stream: bz2 and xz files are made of one or several."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def read_blocks(
    path: Path | None,
    compression: Compression,
    name: str,
    advance: Callable[[int], None] = lambda position: None,
) -> Generator[bytes]:
    """The decompressed bytes of `path` (None: standard input); only the last block is short.

    Args:
        advance: called with how many bytes of the file, as it is stored, were read for each block.

    Raises:
        CorpusError: the file cannot be read, its compressed data is damaged or cut off, or it
            unfolds to a multiple of its size that no text has (see `Expansion`).
    """
    try:
        if path is None:
            yield from _read_file(sys.stdin.buffer)
        elif not compression:
            with path.open("rb") as file:
                for block in _read_file(file):
                    advance(file.tell())
                    yield block
        else:
            expansion = Expansion(name)
            with path.open("rb") as file:
                for block in _decompress(file, compression):
                    expansion.add(len(block), file.tell())
                    advance(file.tell())
                    yield block
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
        raise _damaged(name, error) from None
    except OSError as error:
        if error.errno is None:  # bz2 reports damage so
            raise _damaged(name, error) from None
        raise CorpusError(f"{name} cannot be read: {error.strerror}.") from None


def _damaged(name: str, error: Exception) -> CorpusError:
    reason = " ".join(str(error).split()).rstrip(".")
    if "memory" in reason.lower():
        return CorpusError(
            f"{name} takes more than {MAX_DECOMPRESSOR_BYTES >> 20} MB of memory to decompress."
            " Decompress it yourself and name the result."
        )
    return CorpusError(f"{name} cannot be decompressed: {reason}. Fetch or copy it again.")


def _decompress(file: BinaryIO, compression: Compression) -> Iterator[bytes]:
    if compression == ".gz":
        return _read_file(gzip.GzipFile(fileobj=file))
    if compression == ".bz2":
        return _gather(_unpack_streams(file, bz2.BZ2Decompressor))
    return _gather(_unpack_streams(file, _new_xz) if compression == ".xz" else _unzstd(file))


def _new_xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=MAX_DECOMPRESSOR_BYTES)


def _read_file(file: _Readable) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks, of which only the last is short."""
    ready = bytearray()
    for piece in pieces:
        ready += piece
        while len(ready) >= BLOCK_BYTES:
            yield bytes(ready[:BLOCK_BYTES])
            del ready[:BLOCK_BYTES]
    if ready:
        yield bytes(ready)


def _unpack_streams(file: BinaryIO, new_stream: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """Unlike the readers of the standard library this one bounds the memory of xz, and notices
    rubbish after the first stream."""
    data = file.read(_INPUT_BYTES)
    while data:
        stream = new_stream()
        while not stream.eof:
            if stream.needs_input and not data and not (data := file.read(_INPUT_BYTES)):
                raise EOFError("the file ends in the middle of a stream")
            yield stream.decompress(data, BLOCK_BYTES)
            data = b""
        data = stream.unused_data.lstrip(b"\0")
        while not data and (padding := file.read(_INPUT_BYTES)):
            data = padding.lstrip(b"\0")


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """Unlike zstandard's own reader this one notices a cut-off file."""
    frame = None
    rest = b""
    while piece := rest + file.read(_ZSTD_INPUT_BYTES - len(rest)):
        if frame is None:
            if not piece.startswith(_ZSTD_MAGICS):
                raise zstandard.ZstdError("not a zstandard frame")
            frame = zstandard.ZstdDecompressor(
                max_window_size=MAX_DECOMPRESSOR_BYTES // 2
            ).decompressobj()
        yield frame.decompress(piece)
        rest = b""
        if frame.eof:
            rest, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the file ends in the middle of a frame")
