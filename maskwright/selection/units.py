"""Words as the rules of selection count them, in any script.

In scripts without blanks between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan)
each letter counts as a word.
"""

import re
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Of ASCII and Latin-1, of all scripts, of East Asia, of Arabic and of Hindi.
_PUNCTUATION = (
    r"!-/:-@\[-`{-~" "\u00a1-\u00bf\u2010-\u206f\u3001-\u303f\uff01-\uff0f\uff1a-\uff20"
    "\u060c\u061b\u061f\u06d4\u0964\u0965"
)  # fmt: skip
# Vowel signs are no letters to `re`, so a word is what is not something else.
_WORDS = re.compile(rf"[{UNSPACED}]|[^\s{_PUNCTUATION}{UNSPACED}]+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's hash loses its low bits
_MAX_KNOWN = 1 << 18  # words whose hashes are remembered

Hashes = NDArray[np.uint64]


def split_words(text: str) -> list[str]:
    """The words, in lower case and without punctuation."""
    return _WORDS.findall(text.lower())


class WordHashes:
    """64-bit hashes of words and of n words in a row, the same in every process."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, words: list[str]) -> Hashes:
        """A hash for each of W words."""
        known = self._known
        if len(known) > _MAX_KNOWN:
            known.clear()
        for word in words:
            if word not in known:
                known[word] = _hash_word(word)
        return np.fromiter(map(known.__getitem__, words), np.uint64, len(words))


def _hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def join_hashes(hashes: Hashes, longest: int) -> dict[int, Hashes]:
    """For n = 1 … `longest` a hash of each n words in a row: [W - n + 1] of W words."""
    joined = {1: hashes}
    for n in range(2, longest + 1):
        if len(hashes) < n:
            break
        joined[n] = joined[n - 1][:-1] * _MULTIPLIER + hashes[n - 1 :]
    return joined
