"""Bytes to text: finding the encoding, and errors that name the likely one.

A file has one encoding: that of its byte order mark, else UTF-8, else the configured one.
"""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from maskwright.corpus.documents import Span, UnreadableError
from maskwright.errors import CorpusError

UTF_8 = "utf-8"
FLAG = "--corpus.encoding"


def _keep_visible(error: UnicodeError) -> tuple[str, int]:
    """Decode undecodable bytes to lone surrogates; "surrogateescape" cannot for ASCII bytes."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff" * (error.end - error.start), error.end


codecs.register_error("maskwright-keep", _keep_visible)

_MARKS = {  # byte order marks; UTF-32 first, because its mark begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def find_encoding(first: bytes, given: str) -> str | None:
    """Return the encoding of a text by its first block (None: ASCII so far).

    Args:
        given: the configured encoding, of what is not UTF-8.
    """
    return _MARKS.get(_find_mark(first)) or _choose(first, codecs.lookup(given).name)


_HEAD_BYTES = 1 << 16
_MAX_UNDECODABLE = 0.001  # share of bytes; more is another encoding, or damage that loses words
_MAX_STRAY = 3  # bytes: those of one truncated character
_UNDECODABLE = re.compile(r"[\udc80-\udcff]")  # each represents a byte
# How files begin that are not text, though people name them so; others are full of control
# characters.
_SIGNATURES = {
    b"%PDF-": "a PDF document",
    b"{\\rtf": "a Rich Text document (RTF)",
    b"PK\x03\x04": "a zip archive or Office document (docx, xlsx, ods)",
    b"\xd0\xcf\x11\xe0": "an older Office document (doc, xls, ppt)",
    b"PAR1": "a Parquet table (.parquet)",
    b"\x1f\x8b\x08": "compressed by gzip (.gz)",
    b"BZh91AY&SY": "compressed by bzip2 (.bz2)",
    b"\xfd7zXZ\0": "compressed by xz (.xz)",
    b"\x28\xb5\x2f\xfd": "compressed by zstandard (.zst)",
}


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
        exact: raise for any undecodable byte, as fine-tuning does, which has no `FLAG`.
        span: the part of the file that `blocks` are. The bytes before it count as decodable, so
            that a part is not rejected if the whole file would be accepted.

    Raises:
        UnreadableError: there are no bytes, or the first ones are not text.
        CorpusError: more than 0.1 % of the bytes so far cannot be decoded and they are more than
            one character beside UTF-8, or any if `exact` (the error names the likely encoding); or
            UTF-8 follows text in `encoding`.
    """
    encoding, rest = codecs.lookup(encoding).name, iter(blocks)
    first = next(rest, b"")
    is_checked, span = span is not None, span or Span(0, 0)
    if not first and not span.total:  # a part in which no document ends is empty
        raise UnreadableError("empty file", f"{name} is empty: it has no text.")
    for signature, kind in _SIGNATURES.items():
        if first.startswith(signature) and not is_checked:
            remedy = (
                "Save it as text, or a table as CSV, in UTF-8; other formats need their suffix."
            )
            raise UnreadableError("binary file", f"{name} is {kind}, not text. {remedy}")
    mark = _find_mark(first) if span.is_beginning else b""
    blocks = chain([first[len(mark) :]], rest, [b""])
    known, flagged = _MARKS.get(mark) or span.encoding, None if exact else encoding
    num_bytes, num_bad, num_lines = span.start, 0, 0
    for block, text, chosen in _decode(blocks, name, encoding, known):
        if not is_checked:
            _check_control(text[:_HEAD_BYTES], block, name, chosen, flagged)
            is_checked = True
        num_bytes += len(block)
        if not text.isascii() and (bad := _UNDECODABLE.search(text)):
            num_bad += len(_UNDECODABLE.findall(text))
            is_stray = num_bad <= _MAX_STRAY and is_mostly_utf8(block or first)
            if exact or not (is_stray or num_bad <= _MAX_UNDECODABLE * num_bytes):
                line = num_lines + text.count("\n", 0, bad.start()) + 1
                place = name if span.start else f"{name}:{line}"
                raise not_decodable(block or first, place, chosen, flagged)
        num_lines += text.count("\n")
        yield text


def _find_mark(first: bytes) -> bytes:
    return next((mark for mark in _MARKS if first.startswith(mark)), b"")


def _decode(
    blocks: Iterable[bytes], name: str, given: str, chosen: str | None
) -> Iterator[tuple[bytes, str, str]]:
    """Yield each block with its text and encoding; the last block is empty.

    Args:
        given: the encoding of text that is not UTF-8.
        chosen: the encoding if it is known; else the first non-ASCII characters decide.
    """
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    decoder, held = None, b""
    for block in blocks:
        held += block
        chosen = chosen or _choose(held, given) or (None if block else given)
        if chosen is None and not held.isascii():  # its only non-ASCII character is cut off
            continue
        if chosen is None:
            text = held.decode("ascii")
        else:
            if chosen == given != UTF_8 and _reads_ascii(given) and is_mostly_utf8(held):
                raise _mixed(name, given)
            decoder = decoder or codecs.getincrementaldecoder(chosen)("maskwright-keep")
            text = decoder.decode(held, final=not block)
        yield held, newlines.decode(text, final=not block), chosen or UTF_8
        held = b""


def _choose(block: bytes, given: str) -> str | None:
    """Return the encoding of text without a mark: UTF-8 or `given`; None if all of it is ASCII."""
    if given == UTF_8:
        return UTF_8
    is_utf8 = is_mostly_utf8(block)
    if is_utf8 is None and _reads_ascii(given):
        return None
    if given.startswith(("utf-16", "utf-32")):
        is_utf8 = b"\0" not in block and is_utf8 is not False
    if is_utf8:
        return UTF_8
    if given in ("utf-16", "utf-32"):  # the byte order is inferred
        likely = guess_encoding(block) or ""
        return likely if likely.startswith(given) else f"{given}-le"
    return given


def _reads_ascii(encoding: str) -> bool:
    try:
        return bytes(range(128)).decode(encoding) == "".join(map(chr, range(128)))
    except UnicodeError:
        return False


def has_safe_line_ends(encoding: str) -> bool:
    """Return True if every byte 10 is a line end after which decoding can begin."""
    return _reads_ascii(encoding) and not codecs.lookup(encoding).name.startswith("iso2022")


# Control characters. Text has none; compressed data has about 12 %.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROL = 0.05


def _check_control(text: str, block: bytes, name: str, encoding: str, given: str | None) -> None:
    """Raise if the beginning of a file is binary or in an undeclared wide encoding."""
    share = len(_CONTROL.findall(text)) / max(len(text), 1)
    if share <= _MAX_CONTROL:
        return
    if (guess_encoding(block) or "").startswith(("utf-16", "utf-32")):
        raise not_decodable(block, name, encoding, given)
    raise UnreadableError(
        "binary file",
        f"{name} is binary: {share:.0%} of its first {len(text):,} characters are control "
        "characters. Leave it out.",
    )


_FIRST_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_SAMPLE_BYTES, _CONTEXT_BYTES = 1 << 14, 1 << 8
_USUAL = ("cp1252", "shift_jis", "euc_jp", "cp949")  # of encodings that decode a sample alike
_CENTRAL_EUROPE = ("Croatian", "Czech", "Hungarian", "Polish", "Romanian", "Slovak", "Slovene")


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


_BEYOND_ASCII = re.compile(r"[^\x00-\x7f\udc80-\udcff]+")


def is_mostly_utf8(block: bytes) -> bool | None:
    """Return True if the non-ASCII bytes of a block are mostly UTF-8; None if all bytes are ASCII.

    A character that is truncated at the end is ignored.
    """
    text = codecs.getincrementaldecoder(UTF_8)("surrogateescape").decode(block)
    num_good = sum(map(len, _BEYOND_ASCII.findall(text)))
    num_bad = len(_UNDECODABLE.findall(text))
    return num_good > num_bad if num_good or num_bad else None


def not_decodable(block: bytes, place: str, encoding: str, given: str | None = None) -> CorpusError:
    """Return the error about undecodable bytes, with the likely encoding and how to read it.

    Args:
        block: bytes of the file, including those that cannot be decoded.
        place: the name of the file, and of the line if it is known.
        encoding: the encoding in which the file was read.
        given: the value of the command's flag for the encoding; None if it has no such flag.
    """
    if encoding == UTF_8 and is_mostly_utf8(block):
        fault = "is mostly UTF-8, but damaged or mixed with another encoding"
        return CorpusError(f"{place} {fault}. Repair it, or leave it out.")
    likely = guess_encoding(block)
    if given is not None and likely == given != encoding:
        return _mixed(place, given)
    fault = f"is not {'UTF-8' if encoding == UTF_8 else encoding}"
    if likely in (None, encoding):
        likely = "NAME"
    else:
        fault += f" but likely {likely}"
    read = "Convert" if given is None else f"Read it with {FLAG} {likely}, or convert"
    return CorpusError(f"{place} {fault}. {read} it to UTF-8.")


def _mixed(place: str, given: str) -> CorpusError:
    remedy = "Convert its parts to UTF-8, or leave it out."
    return CorpusError(f"{place} has text in {given} and text in UTF-8. {remedy}")
