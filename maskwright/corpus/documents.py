"""Documents and their sources.

A document is a coherent text, such as an article; no training segment crosses its ends.
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
    """One document: its text, its id, and its source.

    `id` is short and readable (``wiki.txt.gz:17``: the 17th document of that file;
    ``wiki.txt@64000000:17``: of its part that begins at that byte); `source` is the input as the
    user named it.
    """

    text: str
    id: str
    source: str


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a file, in bytes or, for Parquet, in row groups.

    Attributes:
        head: number of bytes at the beginning of the file that are read before the part: the header
            line of a table, or the XML before the first page of a dump.
        mode: the unit that is one document, as inferred from the beginning of the file.
        encoding: the encoding, also inferred; None if the beginning is ASCII.
        total: number of row groups of a Parquet file, or of bytes of a file whose compression
            cannot be cut, so that each part unpacks everything before it. Else 0.
    """

    start: int
    end: int
    head: int = 0
    mode: DocumentMode | None = None
    encoding: str | None = None
    total: int = 0

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The byte ranges to read, in order."""
        return ((0, self.head), (self.start, self.end))

    @property
    def is_beginning(self) -> bool:
        """Whether reading begins at the first byte of the file."""
        return not self.start or self.head > 0


@dataclass(frozen=True, slots=True)
class Source:
    """One input to read: a file, a part of a file, or a stream of texts.

    Attributes:
        title: the input as the user named it.
        label: the short name in document ids.
        kind: a key of `maskwright.corpus.readers.dispatch.FORMATS`.
        compression: the suffix of the file's compression; "" for none.
        path: the file; None for other inputs.
        explicit: the user named this file itself, so it is an error if it cannot be read; an
            unreadable file in a folder or of a pattern is skipped and counted.
        span: the part to read; None: all. Only a file with a document at its beginning is cut, so
            a part without documents is not an error.
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
        """The name for messages; the name of a part includes its range."""
        if self.span is None:
            return self.title
        unit = "row groups" if self.kind == "parquet" else "bytes"
        return f"{self.title} ({unit} {self.span.start:,} to {self.span.end:,})"


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of a reader.

    Attributes:
        counts: the reader's counts of dropped and repaired items, by reason.
    """

    source: Source
    config: CorpusConfig
    counts: Counter[str]


def cut_text(text: str, limit: int) -> Iterator[str]:
    """Cut `text` into pieces of at most `limit` characters; nothing is lost.

    A piece ends at the last line end in its second half, else at the last blank there, else inside
    a word.
    """
    start = 0
    while len(text) - start > limit:
        middle, end = start + limit // 2, start + limit
        stop = text.rfind("\n", middle, end) + 1 or text.rfind(" ", middle, end) + 1 or end
        yield text[start:stop]
        start = stop
    yield text[start:] if start else text
