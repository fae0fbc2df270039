"""The errors that name the likely encoding of text that is not UTF-8, and how to read it."""

import codecs
import re
import shlex
from pathlib import Path

from maskwright.errors import CorpusError

UTF_8 = "utf-8"
UNDECODABLE = re.compile(r"[\udc80-\udcff]")  # each represents a byte
FLAG = "--corpus.encoding"

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
