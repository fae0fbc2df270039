"""Reader of plain text: its encoding, and the errors that name the likely one."""

import codecs
import io
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from maskwright.corpus.config import CorpusConfig, DocumentMode
from maskwright.corpus.documents import (
    Reading,
    Source,
    Span,
    UnreadableError,
    detect_mode,
    split_documents,
)
from maskwright.errors import CorpusError

UTF_8 = "utf-8"
UNDECODABLE = re.compile(r"[\udc80-\udcff]")  # each represents a byte
FLAG = "--corpus.encoding"

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
_UNDECODABLE_RUN = re.compile(r"[\udc80-\udcff]+")
_MAX_STRAY = 3  # bytes: those of one truncated character
_NO_LETTERS = b"\xa0\xff"  # no-break spaces of several encodings
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f\udc80-\udcff]+")
_FIRST_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_RANGE = re.compile(r" \(bytes [\d,]+ to [\d,]+\)$")
_UNPACK = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".xz": "xz -dc", ".zst": "zstd -dc"}
_ICONV = {  # encodings whose name in iconv differs from Python's
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32-le": "UTF-32LE",
    "utf-32-be": "UTF-32BE",
    "euc_jp": "EUC-JP",
    "mac-roman": "MACINTOSH",
}
_SAMPLE_BYTES, _CONTEXT_BYTES = 1 << 14, 1 << 8
_USUAL = ("cp1252", "shift_jis", "euc_jp", "cp949")  # of encodings that decode a sample alike
_CENTRAL_EUROPE = ("Croatian", "Czech", "Hungarian", "Polish", "Romanian", "Slovak", "Slovene")


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


def guess_encoding(block: bytes) -> str | None:
    """Return Python's name of the likely encoding around the first non-ASCII byte, or None."""
    import charset_normalizer  # late: only errors need it

    beyond = _FIRST_BEYOND_ASCII.search(block)
    start = max(0, beyond.start() - _CONTEXT_BYTES) // 4 * 4 if beyond else 0
    found = list(charset_normalizer.from_bytes(block[start : start + _SAMPLE_BYTES]))
    if not found:
        return None
    best, names = found[0], found[0].could_be_from_charset
    if best.language not in _CENTRAL_EUROPE:  # elsewhere cp1250 is unusual: its č is è in cp1252
        score = best.chaos, best.coherence
        names += [one.encoding for one in found if (one.chaos, one.coherence) == score]
    return codecs.lookup(next((name for name in _USUAL if name in names), names[0])).name


def is_mostly_utf8(block: bytes) -> bool | None:
    """Return True if the non-ASCII bytes of a block are mostly UTF-8; None if all bytes are ASCII.

    A character that is truncated at the end is ignored.
    """
    text = codecs.getincrementaldecoder(UTF_8)("surrogateescape").decode(block)
    num_good = sum(map(len, _BEYOND_ASCII.findall(text)))
    num_bad = len(UNDECODABLE.findall(text))
    return num_good > num_bad if num_good or num_bad else None


def is_stray(text: str, block: bytes, encoding: str) -> bool:
    """Return True if the only undecodable bytes are one damaged character that is not a letter.

    Args:
        text: the decoded `block`, with a lone surrogate for each undecodable byte.
        encoding: the encoding of `block`.
    """
    runs = _UNDECODABLE_RUN.findall(text)
    if len(runs) > 1 or len(runs[0]) > _MAX_STRAY:
        return False
    if encoding != UTF_8 or is_mostly_utf8(block):
        return True
    beyond = _FIRST_BEYOND_ASCII.search(block)
    assert beyond is not None, "ASCII bytes are decodable in UTF-8"
    start = beyond.start()
    return not block[start : start + len(runs[0])].strip(_NO_LETTERS)


def not_decodable(
    block: bytes,
    name: str,
    encoding: str,
    where: int | str,
    flag: str | None = None,
    given: str | None = None,
) -> CorpusError:
    """Return the error about undecodable bytes, with the likely encoding and how to read it.

    Args:
        block: bytes of the file, including those that cannot be decoded.
        encoding: the encoding in which the file was read.
        where: the number of the undecodable line, or the undecodable share in words.
        flag: the command's flag for the encoding; None if it has none.
        given: the value of that flag, if any.
    """
    place, why = (f"{name}:{where}", "") if isinstance(where, int) else (name, where)
    if encoding == UTF_8 and is_mostly_utf8(block):
        why = why and f": {why}"
        return CorpusError(
            f"{place} is mostly UTF-8, but damaged or mixed with another encoding{why}. "
            f"Repair it; to drop these bytes: {_convert(name, UTF_8, '-c ')}"
        )
    likely = guess_encoding(block)
    if likely is not None and likely == given != encoding:
        return mixed(name, encoding, likely)
    why = why and f" ({why})"
    if likely is None or likely == encoding:
        remedy = f"Name its encoding with {flag}, or convert" if flag else "Convert"
        return CorpusError(f"{place} is not {_show(encoding)}{why}. {remedy} it to UTF-8.")
    read = f"Read it with {flag} {likely} (prepare, pretrain), or convert" if flag else "Convert"
    return CorpusError(
        f"{place} is not {_show(encoding)} but likely {likely}{why}. {read} it: "
        f"{_convert(name, likely)}"
    )


def mixed(name: str, first: str, later: str) -> CorpusError:
    """Return the error about a file whose parts have different encodings."""
    return CorpusError(
        f"{name} begins in {_show(first)} and continues in {_show(later)}. Convert its parts to "
        "UTF-8, or leave it out."
    )


def _show(encoding: str) -> str:
    return encoding.upper() if encoding == UTF_8 else encoding


def _convert(name: str, encoding: str, options: str = "") -> str:
    """Return the shell command that writes a UTF-8 copy of a file to the current folder."""
    name = _RANGE.sub("", name)  # the command converts the whole file
    path = Path(name)
    iconv = f"iconv {options}-f {_ICONV.get(encoding, encoding)} -t UTF-8"
    unpack = _UNPACK.get(path.suffix.lower())
    out = shlex.quote(f"utf8-{path.stem if unpack else path.name}")
    if unpack is None:
        return f"{iconv} {shlex.quote(name)} > {out}"
    return f"{unpack} {shlex.quote(name)} | {iconv} > {out}"
