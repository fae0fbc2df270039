"""Words: where they start, for every tokenizer and script, and WordPiece's search in one.

For whole-word masking, a word ends at whitespace and at punctuation, and a punctuation character is
a separate word. In scripts without spaces (Chinese, Japanese, Thai, …) every character may begin a
word, so a token is a word. Combining marks belong to the character before them. Punctuation is as
in BERT: all ASCII symbols and Unicode's categories P.
"""

import unicodedata
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

_SPACE, _ALONE, _LETTER, _MARK = range(4)

# Han, kana, Bopomofo, Yi, Thai, Lao, Tibetan, Myanmar, Khmer: written without spaces.
_UNSPACED = (
    (0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3040, 0x312F),
    (0x31A0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip

# Thai, Lao, Tibetan, Myanmar, Khmer: blanks are between phrases, and U+200B may be between words.
PHRASE_SCRIPTS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
WORD_BREAK = f"(?<=[{PHRASE_SCRIPTS}])\u200b|\u200b(?=[{PHRASE_SCRIPTS}])"

# Replaced in the text of WordPiece, character by character.
ACCENTS = "[\u0300-\u036f]"
INVISIBLE = (  # and what is no character: U+FFFD, private use
    "[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ue000-\uf8ff\ufeff\ufff9-\ufffd]"
)
# GPT-2's regular expression, with marks and joiners after letters.
BYTE_WORDS = (
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}[\\p{L}\\p{M}\u200c\u200d]*| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+"
)

# A step of the pre-tokenizer that splits nothing. It marks tokenizers of text without blanks, in
# which a word is as long as a text, so that every token counts as a word.
TOKEN_WORDS = r"\A(?#every token is a word)(?!)"
_LONG_WORD = 20.0  # characters on average, of all words of a text; no language has 12

_JOINERS = "\u200c\u200d"

WordSplitting = Literal["blanks", "unspaced_characters", "characters"]


@dataclass(frozen=True)
class WordRule:
    """How a model's training data split text into words.

    Attributes:
        splitting: at blanks; also around each character of scripts without blanks; or around each
            character.
        longest: the longest word of scripts without blanks, in characters, if split at blanks.
    """

    splitting: WordSplitting = "unspaced_characters"
    longest: int = 0


def is_punctuation(character: str) -> bool:
    """Return True if BERT treats a (non-whitespace) character as punctuation."""
    if character.isascii():
        return not character.isalnum()
    return unicodedata.category(character)[0] == "P"


@cache
def _classify(character: str) -> int:
    category = unicodedata.category(character)
    if character.isspace():
        return _SPACE
    if category[0] == "M" or category == "Cf":
        return _MARK
    if is_punctuation(character):
        return _ALONE
    code = ord(character)
    return _ALONE if any(first <= code <= last for first, last in _UNSPACED) else _LETTER


def is_unspaced(character: str) -> bool:
    """Return True for a character, not a mark or punctuation, of a script without blanks."""
    return _classify(character) == _ALONE and not is_punctuation(character)


def split_characters(text: str) -> list[str]:
    """Return the characters of a text, each with the combining marks after it."""
    found: list[str] = []
    for character in text:
        if found and _classify(character) == _MARK:
            found[-1] += character
        else:
            found.append(character)
    return found


def split_clusters(text: str) -> list[list[str]]:
    """Return the characters of a text, each in a list with the combining marks after it.

    Joiners are in the list of a character that has marks, too. The result is empty for a text
    without combining marks.
    """
    found: list[list[str]] = []
    has_marks = False
    for character in text:
        is_mark = _is_combining(character)
        if found and (is_mark or (character in _JOINERS and any(map(_is_combining, found[-1])))):
            found[-1].append(character)
            has_marks |= is_mark
        else:
            found.append([character])
    return found if has_marks else []


@cache
def _is_combining(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def has_long_words(texts: Iterable[str]) -> bool:
    """Return True if the words of texts, between blanks, are as long as those of no language.

    Words in scripts without blanks are not counted.
    """
    num_words = num_characters = 0
    for text in texts:
        words = text.split()
        if not text.isascii():
            words = [word for word in words if not any(map(is_unspaced, word))]
        num_words += len(words)
        num_characters += sum(map(len, words))
    return num_characters >= _LONG_WORD * max(num_words, 1)


def measure_unspaced(word: str) -> int:
    """Return the number of characters of a word in a script without blanks; 0 in other scripts."""
    return len(split_characters(word)) if any(map(is_unspaced, word)) else 0


def find_boundaries(text: str) -> list[bool]:
    """Return, for each character, True if a word may begin there."""
    boundaries: list[bool] = []
    previous = _SPACE
    for kind in map(_classify, text):
        if kind == _MARK:
            boundaries.append(previous == _SPACE)
            previous = _LETTER if previous == _SPACE else previous
        else:
            boundaries.append(kind != _LETTER or previous != _LETTER)
            previous = kind
    return boundaries


def find_word_starts(text: str, spans: Iterable[tuple[int, int]]) -> list[bool]:
    """Return, for each token given by its character span in `text`, True if it begins a word.

    A token begins a word if its first non-whitespace character may begin one, and no previous token
    begins with the same character (as the byte tokens of one character do).
    """
    boundaries = find_boundaries(text)
    starts: list[bool] = []
    last = -1
    for start, stop in spans:
        place = start
        while place < stop and _classify(text[place]) == _SPACE:
            place += 1
        place = start if place == stop else place
        starts.append(place != last and (place >= len(text) or boundaries[place]))
        last = place
    return starts


def match_greedily(token: str, vocabulary: Container[str], prefix: str) -> tuple[list[str], str]:
    """Return WordPiece's longest matches from the left, and the rest that nothing matches."""
    found: list[str] = []
    rest = token
    while rest and rest != prefix:
        shortest = 1 + len(prefix) * rest.startswith(prefix)
        lengths = range(len(rest), shortest - 1, -1)
        longest = next((n for n in lengths if rest[:n] in vocabulary), 0)
        if longest == 0:
            return found, rest
        found.append(rest[:longest])
        rest = prefix + rest[longest:]
    return found, ""
