"""Detection of the encoding of text that is not UTF-8, and the errors that name it.

Every candidate encoding decodes the sample. The likely one is that whose non-ASCII characters are
most often letters of the languages written in it. For German and French in cp1252 this is right,
while charset-normalizer 3.5 returns cp1250, which would turn è into č.
"""

import codecs
import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

from maskwright.errors import CorpusError

UTF_8 = "utf-8"
UNDECODABLE = re.compile(r"[\udc80-\udcff]")  # each represents a byte
FLAG = "--corpus.encoding"

_UNDECODABLE_RUN = re.compile(r"[\udc80-\udcff]+")
_MAX_STRAY = 3  # bytes: those of one truncated character
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
_WESTERN = "äöüßéèêëàâçîïôùûñáíóúãõåæøœìòÄÖÜÉÀÇÅØÆ¿¡«»„“”’\u2013…§°"
_CENTRAL = "ąćęłńóśźżáčďéěíňřšťúůýžőűöüäßôľĄĆĘŁŚŻČŘŠŽ„”"
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ"
_GREEK = "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώ"
_TURKISH = "çğıöşüâÇĞİÖŞÜ"
_HEBREW = "".join(map(chr, range(0x5D0, 0x5EB)))
_ARABIC = "".join(map(chr, range(0x621, 0x64B))) + "،؛؟پچژگک"
_KANA = "".join(map(chr, [*range(0x3041, 0x30FF), 0x3001, 0x3002]))
_HANGUL = "".join(map(chr, range(0xAC00, 0xD7A4)))
_LEVEL_1 = bytes(
    byte for lead in range(0xB0, 0xD7) for trail in range(0xA1, 0xFF) for byte in (lead, trail)
).decode("gb2312", "ignore")
_LEVEL_1_BIG5 = bytes(
    byte
    for lead in range(0xA4, 0xC7)
    for trail in (*range(0x40, 0x7F), *range(0xA1, 0xFF))
    for byte in (lead, trail)
).decode("big5", "ignore")
# In order of preference if scores are equal.
_CANDIDATES = {
    "cp1252": _WESTERN,
    "cp1250": _CENTRAL,
    "iso8859-2": _CENTRAL,
    "cp1254": _TURKISH,
    "cp1255": _HEBREW,
    "cp1251": _CYRILLIC,
    "koi8-r": _CYRILLIC,
    "cp866": _CYRILLIC,
    "cp1253": _GREEK,
    "cp1256": _ARABIC,
    "cp850": _WESTERN,
    "mac-roman": _WESTERN,
    "shift_jis": _KANA + _LEVEL_1,
    "euc_jp": _KANA + _LEVEL_1,
    "cp949": _HANGUL,
    "gb18030": _LEVEL_1 + "，。、：；（）《》“”",
    "big5": _LEVEL_1_BIG5 + "，。、：；",
}
_LATIN = frozenset(("cp1252", "cp1250", "iso8859-2", "cp1254", "cp850", "mac-roman"))
_ANYWHERE = "\xa0„“”‘’\u2013\u2014…«»"
# The most frequent letters of alphabets that share a range of bytes.
_FREQUENT = {
    _CYRILLIC: frozenset("оеаинт"),
    _GREEK: frozenset("αοιετσν"),
    _HEBREW: frozenset("יוהלאמר"),
    _ARABIC: frozenset("اليمنو"),
}
_FREQUENT_SHARE = 0.3  # text has a larger share of frequent letters
_SURE, _LIKELY = 0.9, 0.5  # scores
# Runs of non-ASCII characters, with the ASCII letters next to them.
_RUN = re.compile(r"([A-Za-z]?)([^\x00-\x7f]+)([A-Za-z]?)")
_LONGEST_LATIN_RUN = 3
_SAMPLE_BYTES = 1 << 14
_LOW_BYTES = bytes(range(9))
_LOW_SHARE = 0.15  # smallest share of bytes below 9 in UTF-16 and UTF-32; other text has none


def guess_encoding(sample: bytes) -> str | None:
    """Return Python's name of the likely encoding of `sample`; None if none is likely."""
    sample = sample[:_SAMPLE_BYTES]
    num_low = len(sample) - len(sample.translate(None, _LOW_BYTES))
    if num_low >= _LOW_SHARE * len(sample):
        return _guess_wide(sample)
    scores: dict[str, float] = {}
    for name, letters in _CANDIDATES.items():
        scores[name] = _score(sample, name, letters)
        if scores[name] >= _SURE:
            return name
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] >= _LIKELY else None


def _guess_wide(sample: bytes) -> str | None:
    for name in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        text = sample[: len(sample) // 4 * 4].decode(name, "replace")
        num_good = sum((c.isalnum() or c.isspace() or c.isascii()) and c != "\0" for c in text)
        if num_good > _SURE * len(text):
            return name
    return None


def _score(sample: bytes, encoding: str, alphabet: str) -> float:
    """Return the share of non-ASCII characters that are expected in this encoding.

    A word is in one script, so letters of another script next to ASCII letters count as wrong; so
    do many accented letters in a row, and a capital letter after a small one.
    """
    letters, frequent = _expected(alphabet), _FREQUENT.get(alphabet)
    found = num_frequent = total = 0
    for before, run, after in _RUN.findall(sample.decode(encoding, "replace")):
        total += len(run)
        is_latin = encoding in _LATIN
        if (is_latin and len(run) > _LONGEST_LATIN_RUN) or (not is_latin and (before or after)):
            continue
        found += sum(c in letters or c.lower() in letters for c in run)
        num_frequent += sum(c in frequent for c in run) if frequent else 0
        found -= sum(a.islower() and b.isupper() for a, b in pairwise(before + run + after))
    score = found / total if total else 0.0
    return score * min(1.0, num_frequent / total / _FREQUENT_SHARE) if frequent and total else score


@cache
def _expected(alphabet: str) -> frozenset[str]:
    return frozenset(alphabet + _ANYWHERE)


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
    likely = None if encoding != UTF_8 or is_mostly_utf8(block) else _guess(block)
    if likely is None:
        return True
    letters = _FIRST_BEYOND_ASCII.search(block)
    assert letters is not None, "ASCII bytes are decodable in UTF-8"
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
    likely = _guess(block)
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


def _guess(block: bytes) -> str | None:
    """Return the likely encoding of the bytes from the first non-ASCII one on."""
    beyond = _FIRST_BEYOND_ASCII.search(block)
    return guess_encoding(block[beyond.start() // 4 * 4 if beyond else 0 :])


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
