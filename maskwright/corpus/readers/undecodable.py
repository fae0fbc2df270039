"""What an error says about text that is not in the encoding it is read in."""

import codecs
import re
import shlex
from pathlib import Path

from maskwright.corpus.formats import COMPRESSIONS, Compression
from maskwright.corpus.readers.encodings import guess_encoding
from maskwright.errors import CorpusError

UTF_8 = "utf-8"
UNDECODABLE = re.compile(r"[\udc80-\udcff]")  # each stands for a byte
FLAG = "--corpus.encoding"

_RUN = re.compile(r"[\udc80-\udcff]+")
_MAX_STRAY = 3  # bytes, as of one character that is cut off
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f\udc80-\udcff]+")
_FIRST_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_UNPACK: dict[Compression, str] = {
    ".gz": "gzip -dc",
    ".bz2": "bzip2 -dc",
    ".xz": "xz -dc",
    ".zst": "zstd -dc",
}
_ICONV = {  # where iconv has another name than Python
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32-le": "UTF-32LE",
    "utf-32-be": "UTF-32BE",
    "euc_jp": "EUC-JP",
    "mac-roman": "MACINTOSH",
}


def is_mostly_utf8(block: bytes) -> bool | None:
    """Return whether what is beyond ASCII in a block is mostly UTF-8; None if there is nothing.

    A character that is cut off at the end does not count.
    """
    text = codecs.getincrementaldecoder(UTF_8)("surrogateescape").decode(block)
    num_good = sum(map(len, _BEYOND_ASCII.findall(text)))
    num_bad = len(UNDECODABLE.findall(text))
    return num_good > num_bad if num_good or num_bad else None


def is_stray(text: str, block: bytes, encoding: str) -> bool:
    """Return whether all that cannot be decoded is one damaged character, and no letter.

    Args:
        text: `block` as it was decoded, with a lone surrogate for each undecodable byte.
        encoding: that in which it was decoded.
    """
    runs = _RUN.findall(text)
    if len(runs) > 1 or len(runs[0]) > _MAX_STRAY:
        return False
    likely = None if encoding != UTF_8 or is_mostly_utf8(block) else _guess(block)
    if likely is None:
        return True
    letters = _FIRST_BEYOND_ASCII.search(block)
    assert letters is not None, "bytes of ASCII are decodable in UTF-8"
    start = letters.start()
    return block[start : start + len(runs[0])].decode(likely, "replace").isspace()


def not_decodable(
    block: bytes,
    name: str,
    encoding: str,
    where: int | str,
    flag: str | None = None,
    given: str | None = None,
) -> CorpusError:
    """Return the error that says in which encoding a file is likely, and how to read it.

    Args:
        block: some of its bytes, those that cannot be decoded among them.
        encoding: in which it was read.
        where: what cannot be decoded: the number of a line, or how much.
        flag: that of the command which names the encoding; None: there is none.
        given: the encoding that it named, if any.
    """
    place, why = (f"{name}:{where}", "") if isinstance(where, int) else (name, where)
    if encoding == UTF_8 and is_mostly_utf8(block):
        why = why and f": {why}"
        return CorpusError(
            f"{place} is mostly UTF-8, but damaged or mixed with another encoding{why}. "
            f"Repair it; to drop these bytes: {_convert(name, UTF_8, '-c ')}"
        )
    likely = _guess(block)
    if likely is not None and likely == given != encoding:
        return mixed(name, encoding, likely)
    why = why and f" ({why})"
    if likely is None or likely == encoding:
        remedy = f"Say what it is with {flag}, or convert" if flag else "Convert"
        return CorpusError(f"{place} is not {_show(encoding)}{why}. {remedy} it to UTF-8.")
    read = f"Read it with {flag} {likely} (prepare, pretrain), or convert" if flag else "Convert"
    return CorpusError(
        f"{place} is not {_show(encoding)} but likely {likely}{why}. {read} it: "
        f"{_convert(name, likely)}"
    )


def mixed(name: str, first: str, later: str) -> CorpusError:
    """Return the error about a file that begins in one encoding and goes on in another."""
    return CorpusError(
        f"{name} is in {_show(first)} first and in {_show(later)} later. Convert its parts to "
        "UTF-8, or leave it out."
    )


def _show(encoding: str) -> str:
    return encoding.upper() if encoding == UTF_8 else encoding


def _guess(block: bytes) -> str | None:
    """Return the likely encoding, by the bytes from the first one beyond ASCII."""
    beyond = _FIRST_BEYOND_ASCII.search(block)
    return guess_encoding(block[beyond.start() // 4 * 4 if beyond else 0 :])


def _convert(name: str, encoding: str, options: str = "") -> str:
    """Return the command that writes a file in UTF-8, beside it in the current folder."""
    path = Path(name)
    iconv = f"iconv {options}-f {_ICONV.get(encoding, encoding)} -t UTF-8"
    unpack = _UNPACK.get(COMPRESSIONS.get(path.suffix.lower(), ""))
    out = shlex.quote(f"utf8-{path.stem if unpack else path.name}")
    if unpack is None:
        return f"{iconv} {shlex.quote(name)} > {out}"
    return f"{unpack} {shlex.quote(name)} | {iconv} > {out}"
