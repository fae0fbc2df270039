"""Words of plain text as CoNLL corpora have them: punctuation stands by itself.

A model that learned from such words knows ``Paris`` and ``,`` but never saw ``Paris,``.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

_CHUNK = re.compile(r"\S+")
# Abbreviations and initials keep their dots; 's and 're are what is left of a verb.
_WHOLE = re.compile(r"(?:[^\W\d_]\.)+|['\u2019]\w\w?")


class Word(NamedTuple):
    """A word, and where it begins and ends in its text."""

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """The words between blanks, with the punctuation and currency signs around each split off.

    What is inside of a word stays: ``well-known``, ``don't``, ``3.5``. Equal signs in a row are one
    word: ``...``. Text that was split in this way before stays as it is.
    """
    return [
        Word(text[start:end], start, end)
        for chunk in _CHUNK.finditer(text)
        for start, end in _cut(text, *chunk.span())
    ]


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if _WHOLE.fullmatch(text, start, end):
        yield start, end
        return
    first, last = start, end
    while first < end and _is_sign(text[first]):
        first += 1
    while last > first and _is_sign(text[last - 1]):
        last -= 1
    if last < end and _WHOLE.fullmatch(text, first, last + 1):
        last += 1
    yield from _cut_signs(text, start, first)
    if first < last:
        yield first, last
    yield from _cut_signs(text, last, end)


def _cut_signs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for _, group in groupby(range(start, end), key=lambda place: text[place]):
        places = list(group)
        yield places[0], places[-1] + 1


def _is_sign(character: str) -> bool:
    category = unicodedata.category(character)
    return category.startswith("P") or category == "Sc"
