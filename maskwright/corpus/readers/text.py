"""Reader of plain text: decoding, lines and documents.

A document is a block between blank lines, a line, or the whole file.
"""

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

from maskwright.corpus.config import CorpusConfig, DocumentMode
from maskwright.corpus.documents import Reading, Source, Span, cut_text
from maskwright.corpus.readers.encodings import (
    FLAG,
    UNDECODABLE,
    UTF_8,
    guess_encoding,
    is_mostly_utf8,
    is_stray,
    mixed,
    not_decodable,
)
from maskwright.errors import CorpusError

_HEAD_BYTES = 1 << 16
_MAX_UNDECODABLE = 0.001  # share of bytes; more is another encoding, or damage that loses words
# Control characters. Text has none; compressed data has about 12 %.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROL, _MAX_CONTROL_UNDECODABLE = 0.1, 0.01
_TO_TEXT = "Save it as text, or a table as CSV, in UTF-8."
_TO_SUFFIX = "Give it the suffix of its compression (.gz, .bz2, .xz, .zst), or unpack it."
# How files begin that are not text, though people name them so; others are full of control
# characters.
_SIGNATURES = {
    b"%PDF-": ("a PDF document", _TO_TEXT),
    b"{\\rtf": ("a Rich Text document (RTF)", _TO_TEXT),
    b"PK\x03\x04": (
        "a zip archive or Office document (docx, xlsx, ods)",
        f"Unpack it. {_TO_TEXT}",
    ),
    b"\xd0\xcf\x11\xe0": ("an older Office document (doc, xls, ppt)", _TO_TEXT),
    b"PAR1": ("a Parquet table", "Give it the suffix .parquet."),
    b"\x1f\x8b\x08": ("compressed by gzip", _TO_SUFFIX),
    b"BZh91AY&SY": ("compressed by bzip2", _TO_SUFFIX),
    b"\xfd7zXZ\0": ("compressed by xz", _TO_SUFFIX),
    b"\x28\xb5\x2f\xfd": ("compressed by zstandard", _TO_SUFFIX),
}
_ASCII = bytes(range(128))
_MARKS = {  # byte order marks; UTF-32 first, because its mark begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}

# Stray blank lines in a file with one document per line must not join thousands of lines; the
# longest articles of an encyclopedia have a few hundred paragraphs.
_MAX_LINES_A_BLANK = 500


class UnreadableError(CorpusError):
    """A source has no text of the expected kind: it is binary, empty, or other JSON.

    This is an error for a file that the user named; a file in a folder is skipped and counted under
    `reason`. Damage, such as a truncated archive, is a `CorpusError` in both cases.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def _keep_visible(error: UnicodeError) -> tuple[str, int]:
    """Decode undecodable bytes to lone surrogates; "surrogateescape" cannot for ASCII bytes."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff" * (error.end - error.start), error.end


codecs.register_error("maskwright-keep", _keep_visible)


def read_plain(reading: Reading) -> Iterator[str]:
    """Yield the documents of a text file."""
    return _read_documents(reading, reading.config.unit)


def read_markdown(reading: Reading) -> Iterator[str]:
    """Yield a Markdown file as one document, unless ``corpus.documents`` is set."""
    mode = reading.config.unit
    return _read_documents(reading, "file" if mode == "auto" else mode)


def _read_documents(reading: Reading, mode: DocumentMode) -> Iterator[str]:
    span, limit = reading.source.span, reading.config.max_document_characters
    mode = (span and span.mode) or mode
    return split_documents(read_text(reading), mode, limit, reading.counts)


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
    mark = _find_mark(first)
    chosen = _MARKS.get(mark) or _choose_at_once(first[len(mark) :], config.encoding)
    if chosen is None and (is_utf8 := is_mostly_utf8(first)) is not None:
        chosen = UTF_8 if is_utf8 else config.encoding
    return detect_mode(text), chosen


def decode_text(
    blocks: Iterable[bytes],
    name: str,
    encoding: str = UTF_8,
    *,
    exact: bool = False,
    span: Span | None = None,
) -> Iterator[str]:
    """Decode text; all line ends become a newline.

    A byte that cannot be decoded becomes a lone surrogate, which cleaning replaces and counts.

    Args:
        blocks: the bytes of the file, in order.
        name: the name of the file, for messages.
        encoding: the encoding of text that is not UTF-8. A byte order mark has precedence, and so
            has UTF-8 if the first non-ASCII characters are UTF-8.
        exact: raise for any undecodable byte; the command has no flag for the encoding.
        span: the part of the file that `blocks` are. The bytes before it count as decodable, so
            that a part is not rejected if the whole file would be accepted.

    Raises:
        UnreadableError: there are no bytes, or the first ones are not text.
        CorpusError: more than 0.1 % of the bytes so far cannot be decoded and they are more than
            one stray character, or any if `exact` (the error names the likely encoding); or UTF-8
            follows text in `encoding`.
    """
    rest = iter(blocks)
    first = next(rest, b"")
    is_checked, span = span is not None, span or Span(0, 0)
    if not first and not span.total:  # a part in which no document ends is empty
        raise UnreadableError("empty file", f"{name} is empty: it has no text.")
    if not is_checked:
        _check_signature(first, name)
    mark = _find_mark(first) if span.is_beginning else b""
    first = first[len(mark) :]
    chosen = _MARKS.get(mark) or _choose_at_once(first, encoding)
    chooser = _Chooser(name, encoding, span.encoding or chosen, may_mix=chosen is None)
    decoder = io.IncrementalNewlineDecoder(chooser, translate=True)
    flag = None if exact else FLAG
    num_bytes, num_bad, num_lines = span.start, 0, 0
    for block in chain([first], rest, [b""]):
        text = decoder.decode(block, final=not block)
        if not is_checked:
            _check_control(text[:_HEAD_BYTES], block, name, chooser.encoding, flag)
            is_checked = True
        num_bytes += len(block)
        bad = None if text.isascii() else UNDECODABLE.search(text)
        if bad is not None:
            num_bad += len(UNDECODABLE.findall(text))
            seen = block or first
            few = num_bad <= _MAX_UNDECODABLE * num_bytes or is_stray(text, seen, chooser.encoding)
            if exact or not few:
                line = num_lines + text.count("\n", 0, bad.start()) + 1
                share = f"{num_bad / num_bytes:.1%} of its bytes cannot be decoded"
                where = line if exact else share
                raise not_decodable(seen, name, chooser.encoding, where, flag, encoding)
        num_lines += text.count("\n")
        yield text


def _find_mark(first: bytes) -> bytes:
    return next((mark for mark in _MARKS if first.startswith(mark)), b"")


def _choose_at_once(first: bytes, encoding: str) -> str | None:
    """Return the encoding of text without a mark; None if the first non-ASCII bytes decide."""
    kind = codecs.lookup(encoding).name
    if kind == UTF_8:
        return UTF_8
    if _reads_ascii(encoding):
        return None
    if not kind.startswith(("utf-16", "utf-32")):
        return UTF_8 if is_mostly_utf8(first) else encoding
    is_utf8 = b"\0" not in first and is_mostly_utf8(first) is not False
    if is_utf8 or kind not in ("utf-16", "utf-32"):
        return UTF_8 if is_utf8 else encoding
    likely = guess_encoding(first)  # to infer the byte order
    return likely if likely is not None and likely.startswith(kind) else f"{kind}-le"


def _reads_ascii(encoding: str) -> bool:
    try:
        return _ASCII.decode(encoding) == _ASCII.decode("ascii")
    except UnicodeError:
        return False


def has_safe_line_ends(encoding: str) -> bool:
    """Return True if every byte 10 is a line end after which decoding can begin."""
    return _reads_ascii(encoding) and not codecs.lookup(encoding).name.startswith("iso2022")


class _Chooser(codecs.IncrementalDecoder):
    """A decoder of UTF-8 or `given`, as the first non-ASCII characters decide.

    Args:
        name: the name of the file, for messages.
        given: the encoding of text that is not UTF-8.
        chosen: the encoding, if it is known.
        may_mix: the file may mix encodings, so raise if UTF-8 follows text in `given`.
    """

    def __init__(self, name: str, given: str, chosen: str | None, may_mix: bool) -> None:
        super().__init__()
        self.encoding = chosen or UTF_8  # until the first non-ASCII bytes
        self._name, self._given, self._may_mix = name, given, may_mix
        self._decoder = _build_decoder(chosen) if chosen else None
        self._held = b""

    def decode(self, input: Any, final: bool = False) -> str:
        """Return the text of the next bytes; raise CorpusError if UTF-8 follows text in `given`."""
        block, self._held = self._held + bytes(input), b""
        if self._decoder is None:
            if block.isascii():
                return block.decode("ascii")
            is_utf8 = is_mostly_utf8(block)
            if is_utf8 is None and not final:  # the only non-ASCII character is truncated
                self._held = block
                return ""
            self.encoding = UTF_8 if is_utf8 else self._given
            self._decoder = _build_decoder(self.encoding)
        elif self._may_mix and self.encoding != UTF_8 and is_mostly_utf8(block):
            raise mixed(self._name, self.encoding, UTF_8)
        return self._decoder.decode(block, final)


def _build_decoder(encoding: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(encoding)(errors="maskwright-keep")


def _check_signature(first: bytes, name: str) -> None:
    for signature, (kind, remedy) in _SIGNATURES.items():
        if first.startswith(signature):
            raise UnreadableError("binary file", f"{name} is {kind}. {remedy}")


def _check_control(text: str, block: bytes, name: str, encoding: str, flag: str | None) -> None:
    """Raise if the beginning of a file is binary or in an undeclared wide encoding."""
    share = len(_CONTROL.findall(text)) / max(len(text), 1)
    is_decodable = len(UNDECODABLE.findall(text)) <= _MAX_UNDECODABLE * len(text)
    if share <= (_MAX_CONTROL if is_decodable else _MAX_CONTROL_UNDECODABLE):
        return
    likely = guess_encoding(block)
    if likely is not None and likely.startswith(("utf-16", "utf-32")):
        raise not_decodable(block, name, encoding, "it has no byte order mark", flag)
    raise UnreadableError(
        "binary file",
        f"{name} is binary: {share:.0%} of its first {len(text):,} characters are control "
        "characters. Leave it out.",
    )


def read_lines(texts: Iterable[str], limit: int, counts: Counter[str]) -> Iterator[str]:
    """Yield the lines of a text given in blocks; lines longer than `limit` are cut."""
    pending = ""
    for text in texts:
        lines = (pending + text).split("\n")
        pending = lines.pop()
        if len(pending) > limit:
            # The last piece may continue in the next block.
            *pieces, pending = cut_text(pending, limit)
            lines += pieces
            counts["long line cut"] += len(pieces)
        for line in lines:
            if len(line) <= limit:
                yield line
            else:
                pieces = list(cut_text(line, limit))
                counts["long line cut"] += len(pieces) - 1
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
