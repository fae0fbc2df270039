"""Which encoding a text that is not UTF-8 is likely in, told from a sample of its bytes.

Every candidate decodes the sample; the one whose characters beyond ASCII are most often letters of
the languages that are written in it is likely. On German and French in cp1252 this is right where
charset-normalizer 3.5 says cp1250, which would turn è into č, and it needs no package.
"""

import re
from functools import cache
from itertools import pairwise

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
# In order of preference among equals.
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
# Alphabets that lie over one another are told apart by their most frequent letters.
_FREQUENT = {
    _CYRILLIC: frozenset("оеаинт"),
    _GREEK: frozenset("αοιετσν"),
    _HEBREW: frozenset("יוהלאמר"),
    _ARABIC: frozenset("اليمنو"),
}
_FREQUENT_SHARE = 0.3  # in text it is more
_SURE, _LIKELY = 0.9, 0.5  # scores
# Characters beyond ASCII, and whether letters of ASCII are beside them.
_RUN = re.compile(r"([A-Za-z]?)([^\x00-\x7f]+)([A-Za-z]?)")
_LONGEST_LATIN_RUN = 3
_SAMPLE_BYTES = 1 << 14
_LOW_BYTES = bytes(range(9))
_LOW_SHARE = 0.15  # of the bytes of UTF-16 and UTF-32; there are no such bytes in other text


def guess_encoding(sample: bytes) -> str | None:
    """Return the likely encoding of `sample`, as Python calls it; None if it looks like no text."""
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
    """Return the share of the characters beyond ASCII that are expected in this encoding.

    Words are in one script, so letters of another one beside those of ASCII count as wrong, and so
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
