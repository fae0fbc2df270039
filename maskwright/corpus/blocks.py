"""Logical blocks of a corpus: parts of files that independent tasks read.

Blocks depend on the input alone, not on the number of processes. A large file is cut at ends of
documents, which are searched for only near each cut, so the time to cut depends on the number of
blocks, not on the text.
"""

import bz2
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Source, Span
from maskwright.corpus.encoding import has_safe_line_ends
from maskwright.corpus.readers.columns import opening_parquet
from maskwright.corpus.readers.dump import DUMP_END, DumpReader
from maskwright.corpus.readers.records import find_declared, parse_rows
from maskwright.corpus.readers.text import infer_beginning
from maskwright.corpus.sources import read_source
from maskwright.corpus.unpack import BLANK_LINE, LINE_END, read_unpacked
from maskwright.errors import MaskwrightError

_MIN_BYTES = 2_000_000
_MIN_BLOCKS = 64  # of a text that is smaller than 64 blocks of the configured size
_LATE, _SMALLER = 0.6, 4  # after 60 % of a long text, blocks are 4 times smaller
_MAX_PACKED_PARTS = 16  # each part unpacks the file again, 60 times as fast as the other work
_UNPACKED = 3  # estimated bytes of text in a byte of a compressed file

_HEAD_BYTES = 1 << 20  # contain the first document, or the XML before the first page of a dump
_WINDOW = 1 << 16
_OVERLAP = 64  # of windows; a blank line or signature is rarely longer
# The header of a table, and empty lines before it.
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*[^\r\n]+\r?\n")
_PAGE = re.compile(rb"(?=<page>)")  # text of a page spells "<" as "&lt;"
_RECORD = re.compile(rb"\n(?=>)")  # of FASTA
_STREAM = re.compile(rb"(?=BZh[1-9]1AY&SY)")  # 80 bits that do not occur by chance


@dataclass(frozen=True)
class Block:
    """Consecutive files and parts of files, with about as much text as every other block."""

    sources: tuple[Source, ...]

    @property
    def num_bytes(self) -> int:
        """The estimated bytes of its text."""
        return sum(map(estimate_bytes, self.sources))

    def to_plain(self) -> list[list[Any]]:
        """Return the block as JSON values; file names may contain lone surrogates."""
        return [
            [span, explicit, path and str(path), *names]
            for *names, path, explicit, span in map(astuple, self.sources)
        ]

    @classmethod
    def from_plain(cls, plain: Iterable[Sequence[Any]]) -> "Block":
        """Build a block from the values of `to_plain`."""
        sources = (
            Source(*names, path=path and Path(path), explicit=explicit, span=span and Span(*span))
            for span, explicit, path, *names in plain
        )
        return cls(tuple(sources))


class _UncuttableError(Exception):
    """The reason why a file cannot be cut, and the remedy."""


def choose_block_bytes(total_bytes: int, most: int) -> int:
    """Return the bytes of text in a block: `most`, or fewer so that small text has 64 blocks."""
    return min(most, max(_MIN_BYTES, total_bytes // _MIN_BLOCKS))


def estimate_bytes(source: Source) -> int:
    """Return the estimated bytes of text in a source; 0 if it is not a file that can be read."""
    try:
        size = source.path.stat().st_size if source.path else 0
    except OSError:  # the reader will raise the error
        return 0
    if (span := source.span) is not None:
        share = span.end - span.start
        size = size * share // span.total if span.total else share
    return size * _get_factor(source)


def _get_factor(source: Source) -> int:
    return _UNPACKED if source.compression or source.kind == "parquet" else 1


def cut_into_blocks(
    sources: Sequence[Source], config: CorpusConfig, block_bytes: int, report: Callable[[str], None]
) -> list[Block]:
    """Return `sources` in blocks of about `block_bytes` of estimated text, in order.

    The blocks have the same documents as the sources. Small files share a block. A larger file is
    cut; if it cannot be cut, it is one block and `report` is called with the reason. The last of
    many blocks are smaller, so that all processes end at about the same time.
    """
    blocks: list[Block] = []
    gathered: list[Source] = []
    size = before = 0
    total = sum(map(estimate_bytes, sources))
    for source in sources:
        is_late = before > _LATE * total > 2 * _LATE * _MIN_BLOCKS * block_bytes
        step = block_bytes // _SMALLER if is_late else block_bytes
        before += estimate_bytes(source)
        for part, part_bytes in _cut(source, config, step, report):
            if gathered and size + part_bytes > step:
                blocks.append(Block(tuple(gathered)))
                gathered, size = [], 0
            gathered.append(part)
            size += part_bytes
    if gathered:
        blocks.append(Block(tuple(gathered)))
    return blocks


def _cut(
    source: Source, config: CorpusConfig, block_bytes: int, report: Callable[[str], None]
) -> Iterator[tuple[Source, int]]:
    """Yield the parts of a source, each with its estimated bytes of text."""
    size = estimate_bytes(source)
    if source.path is not None and size <= block_bytes:
        yield source, size
        return
    try:
        spans = list(_find_spans(source, config, block_bytes, size))
        if len(spans) < 2:
            raise _UncuttableError("no boundary between documents was found to cut it at")
    except (OSError, MaskwrightError, _UncuttableError) as error:
        reason = error if isinstance(error, _UncuttableError) else "its beginning cannot be read"
        if source.kind != "pydocs":  # which is small
            report(f"{source.name} is read by one process: {reason}.")
        yield source, max(size, block_bytes + 1)
        return
    unit = size / spans[-1].end
    for span in spans:
        yield replace(source, span=span), round((span.end - span.start) * unit)


def _find_spans(
    source: Source, config: CorpusConfig, block_bytes: int, size: int
) -> Iterator[Span]:
    if source.path is None:
        raise _UncuttableError("its size is unknown. Write its text to files")
    if source.compression and (
        source.kind not in ("plain", "markdown", "jsonl", "log")
        and (source.kind, source.compression) != ("dump", ".bz2")
    ):
        raise _UncuttableError(
            f"a {source.compression} file cannot be cut. Unpack it, or split it into several files"
        )
    if source.kind == "parquet":
        return _cut_parquet(source, config, -(-size // block_bytes))
    step = max(1, block_bytes // _get_factor(source))
    if source.kind == "dump":
        return _cut_dump(source, source.path, step)
    return _cut_text(source, source.path, config, step)


def _cut_parquet(source: Source, config: CorpusConfig, num_parts: int) -> Iterator[Span]:
    with opening_parquet(source) as table:
        num_groups: int = table.num_row_groups
    _check_beginning(replace(source, span=Span(0, 1)), config)
    each = -(-num_groups // num_parts)
    starts = range(0, num_groups, each)
    return (Span(n, min(n + each, num_groups), total=num_groups) for n in starts)


def _cut_text(source: Source, path: Path, config: CorpusConfig, step: int) -> Iterator[Span]:
    if source.kind == "csv":
        raise _UncuttableError(
            "a quoted field of CSV may hold line ends. Write it as TSV or JSON lines, or split it"
            " into several files"
        )
    if source.kind == "fastq":
        raise _UncuttableError("a line of qualities may look like a header. Split it into files")
    if config.window_lines and source.kind in ("plain", "markdown", "log"):
        raise _UncuttableError("windows of lines are counted from its beginning")
    is_table = source.kind in ("jsonl", "tsv", "smiles", "fasta")
    mode = "line" if is_table else config.unit
    if source.kind == "log" and mode == "auto":
        mode = "line"
    if mode == "file" or (source.kind == "markdown" and mode == "auto"):
        raise _UncuttableError("it is one document. Choose with --corpus.documents")
    inferred, encoding = infer_beginning(source, config)
    if not has_safe_line_ends(encoding or config.encoding):
        raise _UncuttableError(
            f"text in {encoding or config.encoding} cannot be cut. Convert it to UTF-8"
        )
    beginning = Span(0, min(_HEAD_BYTES, path.stat().st_size))
    _check_beginning(replace(source, span=beginning), config)
    mode, head = inferred if mode == "auto" else mode, 0
    if source.kind == "tsv":
        with path.open("rb") as file:
            start = file.read(_HEAD_BYTES)
        header, lines = _HEADER.match(start), start.decode("latin-1").splitlines()
        if header is None or find_declared(lines):
            raise _UncuttableError("its header line does not end with a newline, or has no names")
        if any(row.num_lines > 1 for row in parse_rows(lines, "\t", is_plain=True)):
            raise _UncuttableError("a quoted field holds a line end. Write it as JSON lines")
        head = header.end()
    part = Span(0, 0, head, None if is_table else mode, encoding)
    if source.compression:
        return _cut_packed(path, step, part)
    if source.kind == "fasta":
        return _cut_at(path, _RECORD, step, part)
    return _cut_at(path, LINE_END if mode == "line" else BLANK_LINE, step, part)


def _cut_packed(path: Path, step: int, part: Span) -> Iterator[Span]:
    """Yield equal parts of a file whose compression cannot be cut. They are few, as reading a part
    begins at the beginning of the file.
    """
    size = path.stat().st_size
    number = min(_MAX_PACKED_PARTS, -(-size // step))
    for n in range(number):
        yield replace(part, start=size * n // number, end=size * (n + 1) // number, total=size)


def _check_beginning(source: Source, config: CorpusConfig) -> None:
    """Raise unless a part contains a document; later parts then need not contain one."""
    if next(read_source(source, config, Counter()), None) is None:
        raise _UncuttableError("no document was found at its beginning")


def _cut_dump(source: Source, path: Path, step: int) -> Iterator[Span]:
    boundary = _STREAM if source.compression else _PAGE
    with path.open("rb") as file:
        beginning = file.read(_HEAD_BYTES)
    first = boundary.search(beginning, 1)
    if first is None and source.compression:
        raise _UncuttableError("it is a single bzip2 stream. Download the multistream dump")
    head = first.start() if first else 0
    if source.compression:
        pages = bz2.BZ2Decompressor().decompress(beginning[head:], _OVERLAP)
        if not pages.lstrip().startswith(b"<page>"):
            raise _UncuttableError("its bzip2 streams are not pages. Download the multistream dump")
    xml = read_unpacked(path, source.compression, source.name, ((0, head),))
    list(DumpReader(source.name).read(chain(xml, [DUMP_END])))
    return _cut_at(path, boundary, step, Span(0, 0, head))


def _cut_at(path: Path, boundary: re.Pattern[bytes], step: int, part: Span) -> Iterator[Span]:
    """Yield parts that end at the first boundary after every `step` bytes."""
    start, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while start < size:
            end = _find(file, max(start + step, part.head), boundary) or size
            yield replace(part, start=start, end=end, head=part.head if start else 0)
            start = end


def _find(file: BinaryIO, start: int, boundary: re.Pattern[bytes]) -> int | None:
    """Return the end of the first match at or after `start`."""
    file.seek(start)
    window = b""
    while block := file.read(_WINDOW):
        window = window[-_OVERLAP:] + block
        if match := boundary.search(window):
            return file.tell() - len(window) + match.end()
    return None
