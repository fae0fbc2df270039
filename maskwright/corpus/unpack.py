"""Reading of the decompressed bytes of a file in blocks of bounded size."""

import bz2
import errno
import gzip
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, cast

from maskwright.errors import CorpusError

Compression = Literal["", ".gz", ".bz2", ".xz", ".zst"]
COMPRESSIONS: dict[str, Compression] = {".gz": ".gz", ".bz2": ".bz2", ".xz": ".xz", ".zst": ".zst"}
BLOCK_BYTES = 1 << 20
_INPUT_BYTES = 1 << 16
_OVERLAP = 64  # of blocks; a blank line is rarely longer
LINE_END, BLANK_LINE = re.compile(rb"\n"), re.compile(rb"\n[ \t\r]*\n")
_XZ_BYTES = 256 << 20  # memory of a decompressor; the strongest usual setting needs a third of it
# These few bytes of zstandard unpack to at most 8 MB (runs of 128 kB take four bytes each).
_ZSTD_INPUT_BYTES = 256


def read_unpacked(
    path: Path | None,
    compression: Compression,
    name: str,
    ranges: Sequence[tuple[int, int]] = ((0, sys.maxsize),),
    part: "PackedPart | None" = None,
) -> Generator[bytes]:
    """Yield the decompressed bytes of `path` (None: standard input); only the last block is short.

    Args:
        ranges: the byte ranges to read of an uncompressed file, or of a bzip2 file with several
            streams.
        part: the part to yield of another compressed file, which is unpacked from its beginning.

    Raises:
        CorpusError: the file cannot be read, or its compressed data is damaged or cut off.
    """
    try:
        if path is None:
            yield from _read_file(sys.stdin.buffer)
        elif not compression:
            with path.open("rb") as file:
                yield from _gather(_read_ranges(file, ranges, BLOCK_BYTES))
        else:
            with path.open("rb") as file:
                for block in _decompress(file, compression, ranges):
                    if taken := block if part is None else part.take(block, file.tell()):
                        yield taken
                    if part is not None and part.is_over:
                        return
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise _damaged(name, error) from None
    except OSError as error:
        if error.errno is None:  # bz2 reports damage as an OSError
            raise _damaged(name, error) from None
        raise CorpusError(f"{name} cannot be read: {error.strerror}.") from None


class PackedPart:
    """A part of a text file whose compression cannot be cut.

    It begins after the first document `boundary` that is unpacked once `start` bytes of the file
    were read, and ends likewise at `end` (None: the last part).
    """

    def __init__(self, start: int, end: int | None, boundary: re.Pattern[bytes]) -> None:
        self.is_over = False
        self._start, self._end, self._boundary = start, end, boundary
        self._is_inside = not start
        self._before = b""  # the end of the previous block, where a boundary may begin

    def take(self, block: bytes, position: int) -> bytes:
        """Return the bytes of the part in the next block; `position` bytes of the file are read."""
        window, begin, end = self._before + block, 0, len(block)
        self._before = window[-_OVERLAP:]
        if not self._is_inside:
            begin = self._find(window, end, position, self._start)
            self._is_inside = begin < end
        if self._is_inside and self._end is not None:
            stop = self._find(window, end, position, self._end)
            self.is_over, end = stop < end, stop
        return block[begin:end]

    def _find(self, window: bytes, length: int, position: int, wanted: int) -> int:
        """Return the first boundary in the block once `wanted` bytes are read, else `length`."""
        if position >= wanted:
            before = len(window) - length
            for match in self._boundary.finditer(window):
                if match.end() > before:
                    return match.end() - before
        return length


def _damaged(name: str, error: Exception) -> CorpusError:
    reason = " ".join(str(error).split()).rstrip(".")
    remedy = "Fetch or copy it again, or decompress it yourself and name the result."
    return CorpusError(f"{name} cannot be decompressed: {reason}. {remedy}")


def _read_ranges(
    file: BinaryIO, ranges: Iterable[tuple[int, int]], most: int = _INPUT_BYTES
) -> Iterator[bytes]:
    """Yield the bytes of the ranges in pieces of at most `most` bytes."""
    for position, end in ranges:
        file.seek(position)
        while piece := file.read(min(most, end - position)):
            position += len(piece)
            yield piece
        if position < end < sys.maxsize:
            raise OSError(errno.EIO, f"it ends before byte {end:,}, so it has changed")


def _decompress(
    file: BinaryIO, compression: Compression, ranges: Sequence[tuple[int, int]]
) -> Iterator[bytes]:
    if compression == ".gz":
        return _read_file(gzip.GzipFile(fileobj=cast(BinaryIO, _SmallReads(file))))
    if compression == ".zst":
        return _gather(_unzstd(file))
    xz = partial(lzma.LZMADecompressor, memlimit=_XZ_BYTES)
    new_stream = bz2.BZ2Decompressor if compression == ".bz2" else xz
    return _gather(_unpack_streams(_read_ranges(file, ranges), new_stream))


class _SmallReads:
    """A file that reads equal amounts in every Python version, so that its parts are the same."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, _INPUT_BYTES))


def _read_file(file: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks of equal size; only the last one is shorter."""
    ready = bytearray()
    for piece in pieces:
        ready += piece
        while len(ready) >= BLOCK_BYTES:
            yield bytes(ready[:BLOCK_BYTES])
            del ready[:BLOCK_BYTES]
    if ready:
        yield bytes(ready)


def _unpack_streams(
    pieces: Iterator[bytes], new_stream: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Iterator[bytes]:
    """Unpack bz2 or xz.

    Unlike the standard library, this limits the memory of xz and detects garbage after a stream.
    """
    data = next(pieces, b"")
    while data:
        stream = new_stream()
        while not stream.eof:
            if stream.needs_input and not data and not (data := next(pieces, b"")):
                raise EOFError("the file ends in the middle of a stream")
            yield stream.decompress(data, BLOCK_BYTES)
            data = b""
        data = stream.unused_data.lstrip(b"\0")
        while not data and (padding := next(pieces, b"")):
            data = padding.lstrip(b"\0")


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """Unpack zstandard. Unlike the library's reader, this detects a truncated file."""
    import zstandard  # late: training from shards needs none

    frame = None
    rest = b""
    while piece := rest + file.read(_ZSTD_INPUT_BYTES - len(rest)):
        frame = frame or zstandard.ZstdDecompressor().decompressobj()
        try:
            block = frame.decompress(piece)
        except zstandard.ZstdError as error:
            raise EOFError(str(error)) from None
        yield block
        rest = b""
        if frame.eof:
            rest, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the file ends in the middle of a frame")
