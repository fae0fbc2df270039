"""From blocks of bytes to text and to lines, with what cannot be decoded kept visible."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from maskwright.corpus.documents import cut_text
from maskwright.corpus.readers.encodings import guess_encoding
from maskwright.corpus.readers.signatures import check_signature
from maskwright.corpus.readers.unreadable import UnreadableError
from maskwright.errors import CorpusError

UTF_8 = "utf-8"

_HEAD_BYTES = 1 << 16
_MAX_UNDECODABLE = 0.001  # of the bytes; more is another encoding, or damage that loses words
# Control characters. Text has none; compressed data has some 12 %.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROL, _MAX_CONTROL_UNDECODABLE = 0.1, 0.01
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f\udc80-\udcff]+")
_FIRST_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_UNDECODABLE = re.compile(r"[\udc80-\udcff]")
_MARKS = {  # byte order marks; that of UTF-32 begins as that of UTF-16 does
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def _keep_visible(error: UnicodeError) -> tuple[str, int]:
    """Decode each undecodable byte to a lone surrogate; "surrogateescape" has none for ASCII."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff" * (error.end - error.start), error.end


codecs.register_error("maskwright-keep", _keep_visible)


def decode_text(blocks: Iterable[bytes], name: str, encoding: str = UTF_8) -> Iterator[str]:
    """Decode text; all line ends become a newline.

    A byte that cannot be decoded becomes a lone surrogate, which cleaning replaces and counts per
    document.

    Args:
        blocks: of the file, in order.
        name: of the file, for messages.
        encoding: that of text which is not UTF-8: a byte order mark wins over it, and so does a
            first block that is UTF-8 beyond ASCII.

    Raises:
        UnreadableError: there are no bytes, or those at the beginning are not text.
        CorpusError: more than 0.1 % of the bytes so far cannot be decoded; names the encoding that
            they are likely in.
    """
    rest = iter(blocks)
    first = next(rest, b"")
    if not first:
        raise UnreadableError("empty file", f"{name} is empty: nothing to train on.")
    check_signature(first[:_HEAD_BYTES], name)
    mark = next((mark for mark in _MARKS if first.startswith(mark)), b"")
    first = first[len(mark) :]
    chosen = _MARKS.get(mark) or (UTF_8 if _is_utf8_beyond_ascii(first) else encoding)
    bytes_decoder = codecs.getincrementaldecoder(chosen)(errors="maskwright-keep")
    decoder = io.IncrementalNewlineDecoder(bytes_decoder, translate=True)
    num_bytes = num_bad = 0
    for block in chain([first], rest, [b""]):
        text = decoder.decode(block, final=not block)
        if not num_bytes:
            _check_control(text[:_HEAD_BYTES], block, name, chosen)
        num_bytes += len(block)
        num_bad += 0 if text.isascii() else len(_UNDECODABLE.findall(text))
        if num_bad > _MAX_UNDECODABLE * num_bytes:
            raise _not_decodable(block or first, name, chosen, num_bad / num_bytes)
        yield text


def _is_utf8_beyond_ascii(block: bytes) -> bool:
    try:
        return not codecs.getincrementaldecoder("utf-8")().decode(block).isascii()
    except UnicodeDecodeError:
        return False


def _check_control(text: str, block: bytes, name: str, encoding: str) -> None:
    """Raise if the beginning of a file is no text in any encoding."""
    share = len(_CONTROL.findall(text)) / max(len(text), 1)
    is_decodable = len(_UNDECODABLE.findall(text)) <= _MAX_UNDECODABLE * len(text)
    if share <= (_MAX_CONTROL if is_decodable else _MAX_CONTROL_UNDECODABLE):
        return
    likely = guess_encoding(block)
    if likely is not None and likely.startswith("utf-"):
        raise _wrong_encoding(name, encoding, likely, "it has no byte order mark")
    raise UnreadableError(
        "binary file",
        f"{name} is binary: {share:.0%} of its first {len(text):,} characters are control "
        "characters. Leave it out.",
    )


def _not_decodable(block: bytes, name: str, encoding: str, share: float) -> CorpusError:
    bad = f"{share:.1%} of its bytes cannot be decoded"
    if encoding == UTF_8:
        text = block.decode("utf-8", "surrogateescape")
        num_bad = len(_UNDECODABLE.findall(text))
        num_good = sum(map(len, _BEYOND_ASCII.findall(text)))
        if num_good > num_bad:
            return CorpusError(
                f"{name} is mostly UTF-8, but damaged or mixed with another encoding: {bad}. "
                f"Repair it; to drop these bytes: iconv -c -f UTF-8 -t UTF-8 {name}"
            )
    beyond = _FIRST_BEYOND_ASCII.search(block)
    likely = guess_encoding(block[beyond.start() // 4 * 4 :]) if beyond else None
    if likely is None or likely == encoding:
        return CorpusError(
            f"{name} is not {encoding}: {bad}. Say what it is with --corpus.encoding, or convert "
            "it to UTF-8."
        )
    return _wrong_encoding(name, encoding, likely, bad)


def _wrong_encoding(name: str, encoding: str, likely: str, why: str) -> CorpusError:
    return CorpusError(
        f"{name} is not {encoding} but likely {likely} ({why}). Read it with --corpus.encoding "
        f"{likely}, or convert it: iconv -f {likely} -t UTF-8 {name} > utf8.txt"
    )


def read_lines(texts: Iterable[str], limit: int, counts: Counter[str]) -> Iterator[str]:
    """The lines of a text that comes in blocks; one longer than `limit` characters is cut."""
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
