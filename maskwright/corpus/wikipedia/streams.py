"""The streams of a multistream dump: bzip2 files of a hundred pages each, one after the other.

Every stream can be unpacked by itself, so cores can share a dump. Where streams begin stands in
the index that belongs to the dump, lines of ``offset:page id:title``; without one it is found by
the signature that every stream begins with (80 bits, aligned to bytes: not met by chance).
"""

import bz2
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from maskwright.errors import CorpusError

# ….xml.bz2, or of a part …3.xml-p151574p311329.bz2
_NAME = re.compile(r"(.*?)(\d*)\.xml(-p\d+p\d+)?\.bz2")
_SIGNATURE = re.compile(rb"BZh[1-9]1AY&SY")
_SIGNATURE_BYTES = 10
_BLOCK = 4 << 20
_MAX_STREAM_BYTES = 1 << 30  # unpacked; a hundred pages have some 2 MB


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes `start` to `end` of a file: one bzip2 stream, or several."""

    start: int
    end: int


def find_index(dump: Path) -> Path | None:
    """The index beside a dump, by the names that Wikimedia gives them; None if there is none."""
    parts = _NAME.fullmatch(dump.name)
    if parts is None:
        return None
    stem, number, pages = parts.groups(default="")
    index = f"{stem}-index{number}.txt{pages}"
    named = [dump.with_name(f"{index}{suffix}") for suffix in (".bz2", "")]
    return next((path for path in named if path.is_file()), None)


def find_streams(dump: Path) -> list[Stream]:
    """All streams of a bzip2 file, in order; one stream if it is no multistream dump.

    Raises:
        CorpusError: the index beside it is that of another dump.
    """
    size, index = dump.stat().st_size, find_index(dump)
    starts = _read_index(index, dump) if index else sorted(set(_scan(dump)))
    starts = [start for start in starts if 0 < start < size]
    return [Stream(*both) for both in zip([0, *starts], [*starts, size], strict=True)]


def _read_index(index: Path, dump: Path) -> list[int]:
    open_lines = bz2.open if index.suffix == ".bz2" else open
    starts: set[int] = set()
    try:
        with open_lines(index, "rb") as lines:
            for line in lines:
                starts.add(int(line.partition(b":")[0]))
    except (ValueError, OSError, EOFError) as error:
        raise CorpusError(f"{index} is no index of a dump: {error}. Remove it.") from None
    size = dump.stat().st_size
    with dump.open("rb") as file:
        for start in sorted(starts):
            file.seek(min(max(start, 0), size))
            begins = _SIGNATURE.match(file.read(_SIGNATURE_BYTES))
            if not begins or start < 0:
                raise CorpusError(
                    f"{index} is not the index of {dump.name}: nothing begins at byte {start}."
                    " Download both of one date, or remove the index."
                )
    # What follows the last page is a stream of its own, which the index does not name.
    return sorted(starts)


def _scan(dump: Path) -> Iterator[int]:
    with dump.open("rb") as file:
        offset, rest = 0, b""
        while block := file.read(_BLOCK):
            window = rest + block
            for match in _SIGNATURE.finditer(window):
                yield offset - len(rest) + match.start()
            offset += len(block)
            rest = window[-(_SIGNATURE_BYTES - 1) :]


def unpack(dump: Path, stream: Stream) -> bytes:
    """What a stream holds.

    Raises:
        CorpusError: it is damaged, or far too large to be pages.
    """
    with dump.open("rb") as file:
        file.seek(stream.start)
        packed = file.read(stream.end - stream.start)
    parts: list[bytes] = []
    size = 0
    try:
        while packed:
            decompressor = bz2.BZ2Decompressor()
            parts.append(decompressor.decompress(packed, _MAX_STREAM_BYTES - size))
            size += len(parts[-1])
            if size >= _MAX_STREAM_BYTES:
                raise CorpusError(
                    f"{dump}: a stream at byte {stream.start} holds more than a gigabyte,"
                    " which is no part of a multistream dump."
                )
            if not decompressor.eof:
                raise EOFError("it is cut off")
            packed = decompressor.unused_data
    except (OSError, EOFError) as error:
        raise CorpusError(
            f"{dump}: damaged at byte {stream.start} ({error}). Download it again."
        ) from None
    return b"".join(parts)
