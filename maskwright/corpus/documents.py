"""Documents and where they come from.

A document is a piece of text that belongs together; no training segment crosses its ends.
"""

import sys
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from maskwright.corpus.config import CorpusConfig, DocumentMode
from maskwright.corpus.readers.blocks import (
    BLANK_LINE,
    LINE_END,
    Compression,
    PackedPart,
    read_blocks,
)


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text, where it comes from, and an id to find it by.

    `id` is short and readable (``wiki.txt.gz:17``: the 17th document of that file;
    ``wiki.txt@64000000:17``: of its part that begins at that byte); `source` is the input as the
    user named it.
    """

    text: str
    id: str
    source: str


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a file: bytes (row groups for Parquet) that are read after the file's first bytes.

    Attributes:
        head: how many bytes of the beginning of the file are read before the part: the header
            line of a table, or what precedes the first page of a dump.
        mode: what one document is, as inferred from the beginning of the file.
        encoding: likewise; None if the beginning is ASCII.
        total: how many row groups a Parquet file has, or bytes a file whose compression cannot be
            cut, so that each part unpacks all before it.
    """

    start: int
    end: int
    head: int = 0
    mode: DocumentMode | None = None
    encoding: str | None = None
    total: int = 0

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the bytes that are read, in order."""
        return ((0, self.head), (self.start, self.end))

    @property
    def is_beginning(self) -> bool:
        """Return True if the first byte that is read is the first one of the file."""
        return not self.start or self.head > 0


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read.

    Attributes:
        title: the input as the user named it.
        label: the short form in document ids.
        kind: a key of `maskwright.corpus.readers.dispatch.FORMATS`.
        compression: of the file.
        path: None unless it is a file.
        explicit: the user named this very file, so it is an error if it cannot be read; a file
            found in a folder is skipped and counted.
        span: the part to read; None: all. A file is cut only if its beginning has a document, so a
            part without documents is no error.
    """

    title: str
    label: str
    kind: str
    compression: Compression = ""
    path: Path | None = None
    explicit: bool = True
    span: Span | None = None

    def read_bytes(self) -> Generator[bytes]:
        """Yield the decompressed bytes of the source in blocks of bounded size.

        Raises:
            CorpusError: the file cannot be read, or its compressed data is damaged.
        """
        span = self.span
        if span is None or not span.total:
            ranges = ((0, sys.maxsize),) if span is None else span.ranges
            return read_blocks(self.path, self.compression, self.name, ranges)
        end = span.end if span.end < span.total else None
        boundary = BLANK_LINE if span.mode == "blank_line" else LINE_END
        part = PackedPart(span.start, end, boundary)
        return read_blocks(self.path, self.compression, self.name, part=part)

    @property
    def name(self) -> str:
        """Return the name for messages; that of a part has its range."""
        if self.span is None:
            return self.title
        unit = "row groups" if self.kind == "parquet" else "bytes"
        return f"{self.title} ({unit} {self.span.start:,} to {self.span.end:,})"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader is given.

    Attributes:
        counts: the reader counts in it what it drops or repairs, by reason.
    """

    source: Source
    config: CorpusConfig
    counts: Counter[str]


def cut_text(text: str, limit: int) -> Iterator[str]:
    """Cut `text` into pieces of at most `limit` characters; nothing is lost.

    A cut falls on the last line end in the second half of a piece, else on the last blank there,
    else in mid-word.
    """
    start = 0
    while len(text) - start > limit:
        middle, end = start + limit // 2, start + limit
        stop = text.rfind("\n", middle, end) + 1 or text.rfind(" ", middle, end) + 1 or end
        yield text[start:stop]
        start = stop
    yield text[start:] if start else text
