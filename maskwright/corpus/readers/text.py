"""From blocks of bytes to text and to lines, with what cannot be decoded kept visible."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from maskwright.corpus.documents import cut_text
from maskwright.corpus.readers.unreadable import UnreadableError

_HEAD_BYTES = 1 << 16
# Real text in another encoding than UTF-8 stays below this share only where it is nearly ASCII,
# and then replacing its few characters loses little; compressed data has about 40 %.
_MAX_GARBAGE = 0.1
_GARBAGE = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\udc80-\udcff]")


def decode_text(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decodes UTF-8, with or without a byte order mark; all line ends become a newline.

    A byte that cannot be decoded becomes a lone surrogate ("surrogateescape"), which cleaning
    replaces and counts per document.

    Raises:
        UnreadableError: there are no bytes, or those at the beginning are not text.
    """
    rest = iter(blocks)
    first = next(rest, b"")
    _check_text(first[:_HEAD_BYTES], name)
    utf8 = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    for block in chain([first.removeprefix(codecs.BOM_UTF8)], rest):
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def _check_text(head: bytes, name: str) -> None:
    if not head:
        raise UnreadableError("empty file", f"{name} is empty: nothing to train on.")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        remedy = f"Convert it: iconv -f UTF-16 -t UTF-8 {name}"
        raise UnreadableError("not UTF-8", f"{name} is UTF-16 text, not UTF-8. {remedy}")
    if head[257:262] == b"ustar":
        raise UnreadableError("archive", f"{name} is a tar archive. Unpack it first.")
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    garbage = len(_GARBAGE.findall(decoder.decode(head))) / len(head)
    if garbage > _MAX_GARBAGE:
        raise UnreadableError(
            "binary file",
            f"{name} is binary or not UTF-8: {garbage:.0%} of its first {len(head)} bytes are no"
            " text. Leave it out, or convert it to UTF-8.",
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
