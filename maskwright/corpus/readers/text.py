"""Reader of plain text: its documents, and what is no plain text although it looks like it."""

import re
from collections.abc import Iterator
from itertools import chain

from maskwright.corpus.config import CorpusConfig, DocumentMode
from maskwright.corpus.documents import (
    Reading,
    Source,
    UnreadableError,
    detect_mode,
    join_windows,
    split_documents,
)
from maskwright.corpus.encoding import decode_text, find_encoding

# A header and a line of letters; a quoted line of prose has a blank after > or in it.
_FASTA = re.compile(r"\s*>\S[^\n]*\n[A-Za-z*.\-]+\s*(?:\n|$)")
_FASTQ = re.compile(r"\s*@\S[^\n]*\n[A-Za-z*.\-]+\s*\n\+[^\n]*\n\S+")


def check_prose(beginning: str, name: str) -> None:
    """Raise UnreadableError if a plain text begins like a FASTA or FASTQ file."""
    for kind, form in (("FASTA", _FASTA), ("FASTQ", _FASTQ)):
        if form.match(beginning):
            suffix = kind.lower()
            raise UnreadableError(
                f"{kind} without its suffix",
                f"{name} is {kind} by its first lines, but plain text by its name: headers would "
                f"become text. Rename it to end in .{suffix} (standard input: write it to a file).",
            )


def read_plain(reading: Reading, auto: DocumentMode = "auto") -> Iterator[str]:
    """Yield the documents of a text file, in the mode `auto` unless ``corpus.documents`` is set."""
    span, config = reading.source.span, reading.config
    mode = (span and span.mode) or (auto if config.unit == "auto" else config.unit)
    limit, blocks = config.max_document_characters, read_text(reading)
    if span is None or span.is_beginning:
        first = next(blocks, "")
        check_prose(first, reading.source.name)
        blocks = chain([first], blocks)
    if config.window_lines:
        return join_windows(blocks, config.window_lines, limit, reading.counts)
    return split_documents(blocks, mode, limit, reading.counts)


def read_text(reading: Reading) -> Iterator[str]:
    """Yield the decoded text of a file in blocks."""
    source = reading.source
    encoding = reading.config.encoding
    return decode_text(source.read_bytes(), source.name, encoding, span=source.span)


def infer_beginning(source: Source, config: CorpusConfig) -> tuple[DocumentMode, str | None]:
    """Return the document mode of a text file, and its encoding (None: ASCII so far).

    Both are inferred from the first block, in the same way as for the whole file.

    Raises:
        CorpusError: the beginning is not text.
    """
    first = next(source.read_bytes(), b"")
    text = next(decode_text([first] if first else [], source.name, config.encoding))
    return detect_mode(text), find_encoding(first, config.encoding)
