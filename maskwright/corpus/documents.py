"""Documents and their sources.

A document is a coherent text, such as an article; no training segment crosses its ends.
"""

import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice, pairwise
from pathlib import Path

from maskwright.corpus.config import CorpusConfig, DocumentMode
from maskwright.corpus.unpack import BLANK_LINE, LINE_END, Compression, PackedPart, read_unpacked
from maskwright.errors import CorpusError

# Stray blank lines in a file with one document per line must not join thousands of lines; the
# longest articles of an encyclopedia have a few hundred paragraphs.
_MAX_LINES_A_BLANK = 500


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text, its id, and its source, which is the input as the user named it.

    ``wiki.txt.gz:17`` is the 17th document of a file, ``wiki.txt@64000000:17`` that of its part
    that begins at this byte.
    """

    text: str
    id: str
    source: str


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a file, in bytes or, for Parquet, in row groups.

    Attributes:
        head: bytes at the beginning of the file that are read before the part: the header line of
            a table, or the XML before the first page of a dump.
        mode, encoding: as inferred from the beginning of the file (None: it is ASCII).
        total: row groups of a Parquet file, or bytes of a file whose compression cannot be cut, so
            that each part unpacks everything before it. Else, `read_bytes` reads a range, 0.
    """

    start: int
    end: int
    head: int = 0
    mode: DocumentMode | None = None
    encoding: str | None = None
    total: int = 0

    @property
    def is_beginning(self) -> bool:
        """Whether reading begins at the first byte of the file, as with a head."""
        return not self.start or self.head > 0


@dataclass(frozen=True, slots=True)
class Source:
    """One input to read: a file, a part of a file, or a stream of texts.

    Attributes:
        title: the input as the user named it; `label` is its short name in document ids.
        kind: a key of `maskwright.corpus.sources.FORMATS`.
        compression: the suffix of the file's compression; "" for none.
        path: the file; None for other inputs.
        explicit: the user named this file itself, so it is an error if it cannot be read; an
            unreadable file in a folder or of a pattern is skipped and counted.
        span: the part to read; None: all. A part without documents is not an error.
    """

    title: str
    label: str
    kind: str
    compression: Compression = ""
    path: Path | None = None
    explicit: bool = True
    span: Span | None = None

    def read_bytes(self) -> Generator[bytes]:
        """Yield the decompressed bytes of the source in blocks; errors as in `read_unpacked`."""
        span, ranges, part = self.span, ((0, sys.maxsize),), None
        if span is not None and span.total:
            end = span.end if span.end < span.total else None
            boundary = BLANK_LINE if span.mode == "blank_line" else LINE_END
            part = PackedPart(span.start, end, boundary)
        elif span is not None:
            ranges = ((0, span.head), (span.start, span.end))
        return read_unpacked(self.path, self.compression, self.name, ranges, part)

    @property
    def name(self) -> str:
        """The name for messages; the name of a part includes its range."""
        if self.span is None:
            return self.title
        unit = "row groups" if self.kind == "parquet" else "bytes"
        return f"{self.title} ({unit} {self.span.start:,} to {self.span.end:,})"


def expand_home(given: str) -> Path:
    """Return a path with ``~`` or ``~user`` expanded; raise CorpusError if the user is unknown."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise CorpusError(f"{given}: {error} Check the path.") from None


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of a reader; it counts dropped and repaired items by reason."""

    source: Source
    config: CorpusConfig
    counts: Counter[str]


class UnreadableError(CorpusError):
    """A source has no text of the expected kind: it is binary, empty, or other JSON.

    A file in a folder is then skipped and counted under `reason`. Damage, such as a truncated
    archive, is a `CorpusError` there, too.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


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


def fingerprint_text(text: str) -> int:
    """Return a 64-bit fingerprint (BLAKE2b) of `text`, the same on every machine."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def fingerprint_pair(text: str) -> tuple[int, int]:
    """Return `fingerprint_text` and a second, independent 64-bit hash of `text`."""
    content = text.encode()
    digests = blake2b(content, digest_size=8), blake2b(content, digest_size=8, key=b"second")
    first, second = (int.from_bytes(one.digest(), "little") for one in digests)
    return first, second


def read_lines(texts: Iterable[str], limit: int, counts: Counter[str]) -> Iterator[str]:
    """Yield the lines of a text given in blocks; lines longer than `limit` are cut."""
    pending = ""
    for text in texts:
        lines = (pending + text).split("\n")
        *pieces, pending = cut_text(lines.pop(), limit)  # it may continue in the next block
        for line in lines:
            if len(line) <= limit:
                yield line
            else:
                cut = list(cut_text(line, limit))
                counts["long line cut"] += len(cut) - 1
                yield from cut
        if pieces:
            counts["long line cut"] += len(pieces)
            yield from pieces
    if pending:
        yield pending


def split_documents(
    texts: Iterable[str], mode: DocumentMode, limit: int, counts: Counter[str]
) -> Iterator[str]:
    """Yield the documents of a plain text; documents longer than `limit` characters are cut."""
    blocks = iter(texts)
    if mode == "auto":
        first = next(blocks, "")
        mode = detect_mode(first)
        blocks = chain([first], blocks)
    lines = read_lines(blocks, limit, counts)
    if mode == "line":
        return (line for line in lines if line and not line.isspace())
    return _gather(lines, mode == "blank_line", limit, counts)


def join_windows(
    texts: Iterable[str], num_lines: int, limit: int, counts: Counter[str]
) -> Iterator[str]:
    """Yield a text in documents of `num_lines` lines; blank lines are not counted."""
    lines = read_lines(texts, limit, counts)
    filled = (line for line in lines if line and not line.isspace())
    return map("\n".join, iter(lambda: list(islice(filled, num_lines)), []))


def detect_mode(beginning: str) -> DocumentMode:
    """Return the document mode of a file, inferred from its first megabyte.

    Blank lines separate documents if there are more than a few; else every line is a document.
    """
    lines = [bool(line.strip()) for line in beginning.split("\n")]
    num_separators = sum(a and not b for a, b in pairwise(lines))
    # Blank lines at the end separate no documents.
    num_separators -= not lines[-1] and any(lines)
    few = num_separators * _MAX_LINES_A_BLANK < sum(lines)
    return "line" if few else "blank_line"


def _gather(
    lines: Iterable[str], split_at_blanks: bool, limit: int, counts: Counter[str]
) -> Iterator[str]:
    gathered: list[str] = []
    size = 0
    for line in lines:
        blank = not line or line.isspace()
        if size + len(line) > limit and gathered:
            counts["long document cut"] += 1
            yield "\n".join(gathered)
            gathered, size = [], 0
        if not blank or (gathered and not split_at_blanks):
            gathered.append(line)
            size += len(line) + 1
        elif gathered:
            yield "\n".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield "\n".join(gathered)
