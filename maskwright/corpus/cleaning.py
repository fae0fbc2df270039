"""Cleaning: valid Unicode in NFC, without control characters and with tidy whitespace.

No step depends on the language, and no word is lost: cleaning a cleaned text changes nothing.
"""

import re
import sys
import unicodedata
from collections import Counter
from functools import cache

# A lone surrogate for each byte that could not be decoded (see encoding.py).
_INVALID = re.compile(r"[\ud800-\udfff]+")
_LINE_ENDS = re.compile(r"[\r\v\f\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffe\uffff]+")
# Soft hyphen, zero-width space, direction marks, word joiner, byte order mark. The zero-width
# (non-)joiner stays: Persian, the scripts of India and emoji need it. Between words of scripts that
# are written without blanks (see tokenizer/words.py), the zero-width space becomes a blank.
_UNSPACED = "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]"  # Thai, Lao, Tibetan, Burmese, Khmer
_WORD_BREAK = re.compile(f"(?<={_UNSPACED})\u200b|\u200b(?={_UNSPACED})")
_INVISIBLE = re.compile(r"[\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]+")
# The single blank, which is kept and most frequent, does not match.
_BLANKS = re.compile(r"[^\S\n ][^\S\n]*| [^\S\n]+")
_BLANKS_AT_LINE_ENDS = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")

# Normalizing a run of combining marks takes time quadratic in its length. No word has more than
# the 30 marks that UAX #15 ("Stream-Safe Text Format") allows, so further ones are removed.
MAX_MARKS = 30
_LONG_LINE = 2_000  # characters; in a shorter line no run is long enough to matter
_MAY_BE_MARKS = re.compile(rf"\W{{{MAX_MARKS + 1}}}")  # a mark is not a letter or digit

_REPAIRS = (
    (_INVALID, "\ufffd", "invalid UTF-8 replaced"),
    (re.compile(r"\0+"), "", "NUL removed"),
    (_CONTROL, "", "control character removed"),
    (_WORD_BREAK, " ", "zero-width space replaced"),
    (_INVISIBLE, "", "invisible character removed"),
)


def clean_text(text: str, counts: Counter[str]) -> str:
    """Return the cleaned text; `counts` counts each kind of repair once per document.

    Line ends become newlines. Other whitespace becomes single blanks, with none at line ends and at
    most one blank line in a row. Changes of whitespace are not counted.
    """
    if _is_clean(text):
        return text
    reasons: set[str] = set()
    lines = text.replace("\r\n", "\n").split("\n")
    text = "\n".join(line if _is_clean_line(line) else _repair(line, reasons) for line in lines)
    counts.update(reasons)
    return _BLANK_LINES.sub("\n\n", text).strip()


def _is_clean(text: str) -> bool:
    """Return True only if cleaning changes nothing; most of the check runs at the speed of C."""
    return (
        "\n\n\n" not in text
        and " \n" not in text
        and "\n " not in text
        and "  " not in text
        and text == text.strip()
        and text.replace("\n", "").isprintable()
        # The only slow check, so it is done by line: most lines are ASCII.
        and (text.isascii() or all(_is_composed(line) for line in text.split("\n")))
    )


def _is_composed(text: str) -> bool:
    if text.isascii():
        return True
    if len(text) > _LONG_LINE and _MAY_BE_MARKS.search(text):
        return False  # unknown; the check takes as long as composing
    return unicodedata.is_normalized("NFC", text)


def _is_clean_line(line: str) -> bool:
    return (
        line.isprintable()
        and "  " not in line
        and not (line.startswith(" ") or line.endswith(" "))
        and _is_composed(line)
    )


def _repair(line: str, reasons: set[str]) -> str:
    for pattern, replacement, reason in _REPAIRS:
        line, num_repairs = pattern.subn(replacement, line)
        if num_repairs:
            reasons.add(reason)
    if not _is_composed(line):
        line = _compose(line, reasons)
    line = _BLANKS.sub(" ", _LINE_ENDS.sub("\n", line))
    return _BLANKS_AT_LINE_ENDS.sub("\n", line).strip(" ")


def _compose(line: str, reasons: set[str]) -> str:
    short = _cut_marks(line)
    composed = unicodedata.normalize("NFC", short)
    if composed != short:
        reasons.add("Unicode normalized")
    result = _cut_marks(composed)  # composing may decompose characters
    if short != line or result != composed:
        reasons.add("combining mark removed")
    return result


def _cut_marks(line: str) -> str:
    return _marks_beyond().sub(r"\1", line) if len(line) > _LONG_LINE else line


@cache
def _marks_beyond() -> re.Pattern[str]:
    # Characters that are a combining mark, or whose decomposition begins with one.
    characters = map(chr, range(0x300, sys.maxunicode))
    decomposed = ((c, unicodedata.normalize("NFD", c)) for c in characters)
    marks = "".join(c for c, parts in decomposed if unicodedata.combining(parts[0]))
    return re.compile(f"([{marks}]{{{MAX_MARKS}}})[{marks}]+")
