"""Plain text: from bytes to text, lines and documents.

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
from maskwright.corpus.readers.signatures import UnreadableError, check_signature

_HEAD_BYTES = 1 << 16
_MAX_UNDECODABLE = 0.001  # of the bytes; more is another encoding, or damage that loses words
# Control characters. Text has none; compressed data has some 12 %.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROL, _MAX_CONTROL_UNDECODABLE = 0.1, 0.01
_ASCII = bytes(range(128))
_MARKS = {  # byte order marks; that of UTF-32 begins as that of UTF-16 does
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}

# Stray blank lines in a file of one document a line must not join thousands of lines; the longest
# articles of an encyclopedia have a few hundred paragraphs.
_MAX_LINES_A_BLANK = 500


def _keep_visible(error: UnicodeError) -> tuple[str, int]:
    """Decode each undecodable byte to a lone surrogate; "surrogateescape" has none for ASCII."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff" * (error.end - error.start), error.end


codecs.register_error("maskwright-keep", _keep_visible)


def read_plain(reading: Reading) -> Iterator[str]:
    """Yield the documents of a text file."""
    return _read_documents(reading, reading.config.documents)


def read_markdown(reading: Reading) -> Iterator[str]:
    """Yield a Markdown file as one document, unless the configuration says what is one."""
    mode = reading.config.documents
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
    """Return what separates the documents of a text file, and its encoding (None: ASCII so far).

    Both are inferred from the first block, as the reader of the whole file infers them.

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
        blocks: of the file, in order.
        name: of the file, for messages.
        encoding: that of text which is not UTF-8. A byte order mark has precedence, and so has
            UTF-8 if the first characters beyond ASCII are UTF-8.
        exact: no byte may be lost, and the command has no flag for the encoding.
        span: the part of a file of text that `blocks` are. The bytes before it count as decodable,
            so that a file is not refused in parts that would be accepted as a whole.

    Raises:
        UnreadableError: there are no bytes, or those at the beginning are not text.
        CorpusError: more than 0.1 % of the bytes so far cannot be decoded, and not just one stray
            character, or any if `exact`; names the encoding that they are likely in. Or UTF-8
            comes after text in `encoding`.
    """
    rest = iter(blocks)
    first = next(rest, b"")
    is_checked, span = span is not None, span or Span(0, 0)
    if not first and not span.total:  # a part in which no document ends is empty
        raise UnreadableError("empty file", f"{name} is empty: nothing to train on.")
    if not is_checked:
        check_signature(first[:_HEAD_BYTES], name)
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
    """Return the encoding of a file without a mark; None if it is ASCII so far in any case."""
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
    likely = guess_encoding(first)  # which comes first, the low byte or the high one
    return likely if likely is not None and likely.startswith(kind) else f"{kind}-le"


def _reads_ascii(encoding: str) -> bool:
    try:
        return _ASCII.decode(encoding) == _ASCII.decode("ascii")
    except UnicodeError:
        return False


def has_safe_line_ends(encoding: str) -> bool:
    """Return True if the byte 10 is a line end, and text can be decoded from there."""
    return _reads_ascii(encoding) and not codecs.lookup(encoding).name.startswith("iso2022")


class _Chooser(codecs.IncrementalDecoder):
    """A decoder of UTF-8 or another encoding, whichever the first non-ASCII characters are in.

    Args:
        name: of the file, for messages.
        given: the encoding of text which is not UTF-8.
        chosen: the encoding, if it is known.
        may_mix: UTF-8 after text in `given` is to be refused.
    """

    def __init__(self, name: str, given: str, chosen: str | None, may_mix: bool) -> None:
        super().__init__()
        self.encoding = chosen or UTF_8  # as far as the bytes so far say
        self._name, self._given, self._may_mix = name, given, may_mix
        self._decoder = _build_decoder(chosen) if chosen else None
        self._held = b""

    def decode(self, input: Any, final: bool = False) -> str:
        """Return the text of the next bytes; raise CorpusError if UTF-8 follows other text."""
        block, self._held = self._held + bytes(input), b""
        if self._decoder is None:
            if block.isascii():
                return block.decode("ascii")
            is_utf8 = is_mostly_utf8(block)
            if is_utf8 is None and not final:  # its end cuts off the only character beyond ASCII
                self._held = block
                return ""
            self.encoding = UTF_8 if is_utf8 else self._given
            self._decoder = _build_decoder(self.encoding)
        elif self._may_mix and self.encoding != UTF_8 and is_mostly_utf8(block):
            raise mixed(self._name, self.encoding, UTF_8)
        return self._decoder.decode(block, final)


def _build_decoder(encoding: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(encoding)(errors="maskwright-keep")


def _check_control(text: str, block: bytes, name: str, encoding: str, flag: str | None) -> None:
    """Raise if the beginning of a file is not text in any encoding."""
    share = len(_CONTROL.findall(text)) / max(len(text), 1)
    is_decodable = len(UNDECODABLE.findall(text)) <= _MAX_UNDECODABLE * len(text)
    if share <= (_MAX_CONTROL if is_decodable else _MAX_CONTROL_UNDECODABLE):
        return
    likely = guess_encoding(block)
    if likely is not None and likely.startswith("utf-"):
        raise not_decodable(block, name, encoding, "it has no byte order mark", flag)
    raise UnreadableError(
        "binary file",
        f"{name} is binary: {share:.0%} of its first {len(text):,} characters are control "
        "characters. Leave it out.",
    )


def read_lines(texts: Iterable[str], limit: int, counts: Counter[str]) -> Iterator[str]:
    """Yield the lines of a text that comes in blocks; lines longer than `limit` are cut."""
    pending = ""
    for text in texts:
        lines = (pending + text).split("\n")
        pending = lines.pop()
        if len(pending) > limit:
            # The last piece may go on in the next block.
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
    """Yield the documents of a plain text; longer ones than `limit` characters are cut."""
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
    """Return what separates the documents of a file, inferred from its first megabyte.

    Blank lines do if there are more than a few; otherwise every line is a document.
    """
    lines = [bool(line.strip()) for line in beginning.split("\n")]
    num_separators = sum(a and not b for a, b in pairwise(lines))
    # Blank lines at the end separate nothing.
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
