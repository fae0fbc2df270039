"""Words as the selection rules count them, in any script (`tokenizer.words` has those of masking).

In scripts without blanks between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan)
each letter counts as a word, with its vowel signs and tones. Rules about consecutive words multiply
their number by the letters of an average word of the language (`count_letters_a_word`).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.documents import fingerprint_text
from maskwright.tokenizer.words import has_long_words

_EAST_ASIAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SOUTH_EAST_ASIAN = "\u0e00-\u109f\u1780-\u17ff"
UNSPACED = _SOUTH_EAST_ASIAN + _EAST_ASIAN
# ASCII and Latin-1, general punctuation, East Asia; then Arabic, Hindi and Japanese.
_PUNCTUATION = (
    r"!-/:-@\[-`{-~" "\u00a1-\u00bf\u2010-\u206f\u3001-\u303f\uff01-\uff0f\uff1a-\uff20"
    "\u060c\u061b\u061f\u06d4\u0964\u0965\u30a0\u30fb"
)  # fmt: skip
_CODES = (*range(0x0E00, 0x10A0), *range(0x1780, 0x1800))
# Signs that belong to the letter before them, and separators of words (Tibetan's tsheg).
_SIGNS = "".join(chr(n) for n in _CODES if unicodedata.category(chr(n)).startswith("M"))
_BETWEEN = "".join(chr(n) for n in _CODES if unicodedata.category(chr(n))[0] in "PSZ")
# `re` does not count vowel signs as letters, so a word is a run of everything but separators.
_WORDS = re.compile(
    rf"(?![{_BETWEEN}{_PUNCTUATION}])[{UNSPACED}][{_SIGNS}]*|[^\s{_PUNCTUATION}{UNSPACED}]+"
)
_UNSPACED, _IN_EAST_ASIA = re.compile(f"[{UNSPACED}]"), re.compile(f"[{_EAST_ASIAN}]")
_KMER = 6  # five in a row, as in n-grams of words, are ten letters
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's hash loses its low bits
_fingerprint = lru_cache(1 << 18)(fingerprint_text)  # of a word

Hashes = NDArray[np.uint64]


def split_words(text: str) -> list[str]:
    """Return the words, lowercased and without punctuation.

    Where words are as long as the text (proteins, DNA), they are its overlapping k-mers.
    """
    if has_long_words([text]):
        joined = "".join(text.lower().split())
        return [joined[n : n + _KMER] for n in range(max(1, len(joined) - _KMER + 1))]
    return _WORDS.findall(text.lower())


def count_letters_a_word(text: str, words: list[str]) -> int:
    """Return how many of these `words` of `text` make up a word of its language: 1 if blanks
    separate words, 2 in Chinese and Japanese, 4 in the scripts of South-East Asia.
    """
    if not _UNSPACED.search(text):
        return 1
    letters = sum(1 for word in words if _UNSPACED.match(word))
    if letters <= len(words) / 2:
        return 1
    in_east_asia = sum(1 for word in words if _IN_EAST_ASIA.match(word))
    return 2 if in_east_asia > letters / 2 else 4


def hash_words(words: list[str]) -> Hashes:
    """Return the 64-bit hash of each of W words, the same in every process."""
    return np.fromiter(map(_fingerprint, words), np.uint64, len(words))


def join_hashes(hashes: Hashes, lengths: Iterable[int]) -> Iterator[tuple[int, Hashes]]:
    """Yield each n of `lengths`, smallest first, and the hashes of all n-grams [W - n + 1]."""
    joined, joined_words = hashes, 1
    for n in sorted(lengths):
        if n > len(hashes):
            return
        while joined_words < n:
            joined = joined[:-1] * _MULTIPLIER + hashes[joined_words:]
            joined_words += 1
        yield n, joined


def find_members(ngrams: Hashes, among: Hashes) -> NDArray[np.intp]:
    """Return the indices of the n-grams that are in `among`, which is sorted and not empty."""
    places = np.minimum(np.searchsorted(among, ngrams), len(among) - 1)
    return np.flatnonzero(among[places] == ngrams)
