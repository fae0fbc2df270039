"""Hiding one word of a text: where words are, which one to hide, and how to show the guess."""

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True)
class WordPlace:
    """A word: its tokens ``first … end`` and its characters ``start … stop`` (ends excluded)."""

    first: int
    end: int
    start: int
    stop: int


@dataclass(frozen=True)
class HiddenWord:
    """A word that was hidden, and what the model put in its place.

    Attributes:
        text: the whole text.
        start, stop: where the word is in it, in characters.
        guess: what the model put there.
        spelled_masks: as many mask tokens as the word has tokens.
    """

    text: str
    start: int
    stop: int
    guess: str
    spelled_masks: str

    @property
    def word(self) -> str:
        """The word that was hidden."""
        return self.text[self.start : self.stop]

    def describe(self) -> list[str]:
        """Four lines: the two words, the text, the text with the mask, the model's text."""
        return [
            f"masked: {self.word} predicted: {self.guess.strip()}",
            f"ACTUAL: {self.text}",
            f"MASKED: {self._replace(self.spelled_masks)}",
            f"MODEL:  {self._replace(self.guess.strip())}",
        ]

    def _replace(self, word: str) -> str:
        return self.text[: self.start] + word + self.text[self.stop :]


def find_words(text: str, offsets: Sequence[Span], word_starts: Sequence[bool]) -> list[WordPlace]:
    """The words of a text that hold a letter or a digit, by the tokens that spell them."""
    firsts = [i for i, starts in enumerate(word_starts) if starts or i == 0]
    words: list[WordPlace] = []
    for first, end in zip(firsts, [*firsts, len(offsets)][1:], strict=True):
        start, stop = offsets[first][0], offsets[end - 1][1]
        word = text[start:stop]
        start += len(word) - len(word.lstrip())
        if any(character.isalnum() for character in word):
            words.append(WordPlace(first, end, start, start + len(word.strip())))
    return words
