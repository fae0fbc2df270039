"""Lost characters: those of a text that a tokenizer encodes as unknown tokens, by cause.

One unknown token may be one letter or a protein of 400, so tokens say nothing about the loss.
WordPiece encodes a word as unknown if it is too long, or if a letter of it is outside the alphabet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import cast

from maskwright.errors import TokenizerError
from maskwright.formatting import show_share
from maskwright.tokenizer.tokenizer import Tokenizer

MUCH = 0.01  # of the characters: worth a line
_MOST = 0.5  # of the characters: what is left is another text
PROBE_CHARACTERS = 300_000  # enough to see what is lost of a text that is read piece by piece


@dataclass(frozen=True)
class Lost:
    """Counts of characters, without blanks.

    Attributes:
        num_characters: all of the text.
        num_in_long: those of words that are longer than `longest`.
        num_outside: those of other words (or runs of letters) that are unknown.
        longest: the longest word that the tokenizer encodes; None if there is no limit.
    """

    num_characters: int = 0
    num_in_long: int = 0
    num_outside: int = 0
    longest: int | None = None

    @classmethod
    def from_plain(cls, values: object) -> "Lost":
        """Return the counts in a manifest of unknown origin; none if they are not counts."""
        if not isinstance(values, dict):
            return cls()
        counts = cast(dict[str, object], values)
        found = [counts.get(field.name) for field in fields(cls)]
        if not all(type(size) is int for size in found[:-1]):
            return cls()
        return cls(*cast(list[int], found))

    def __add__(self, other: "Lost") -> "Lost":
        return Lost(
            self.num_characters + other.num_characters,
            self.num_in_long + other.num_in_long,
            self.num_outside + other.num_outside,
            self.longest or other.longest,
        )

    @property
    def share(self) -> float:
        """The share of the characters that are lost."""
        return (self.num_in_long + self.num_outside) / max(self.num_characters, 1)

    @property
    def is_most(self) -> bool:
        """Whether more than half of the characters are lost."""
        return self.share > _MOST

    def describe(self) -> str:
        """Return how much is lost, and why."""
        share = show_share(self.share, 1)
        return f"{share} of the characters are lost as unknown tokens, {self.name_causes()}"

    def name_causes(self) -> str:
        """Return where characters are lost, the most first, with shares if there are two causes."""
        causes = {
            f"in words of more than {self.longest} characters": self.num_in_long,
            "in words with letters outside the alphabet": self.num_outside,
        }
        counts = sorted(((count, cause) for cause, count in causes.items() if count), reverse=True)
        parts = [cause for _, cause in counts]
        if len(counts) > 1:
            total = max(self.num_characters, 1)
            parts = [f"{show_share(count / total, 1)} {cause}" for count, cause in counts]
        return " and ".join(parts)

    def advise(self, is_trained: bool = True) -> str:
        """Return a remedy.

        Args:
            is_trained: the tokenizer is trained on the text, so its settings may be changed.
        """
        if not is_trained:
            return (
                "Give text like that of the model (case too). For other text, pretrain with "
                "--init-from MODEL --tokenizer.replace_vocab N --tokenizer.kind bpe or character."
            )
        if self.num_in_long >= self.num_outside:
            return (
                "Set --tokenizer.kind character (a token a letter) or bpe: they have no longest "
                "word."
            )
        return (
            "Raise --tokenizer.vocab_size, or set --tokenizer.kind bpe, which knows all "
            "characters; character needs a token a letter."
        )

    def check(self, is_trained: bool = True, what: str = "") -> "Lost":
        """Return self; raise TokenizerError if most is lost.

        Args:
            is_trained: as in `advise`.
            what: the text, for the message.
        """
        if self.is_most:
            prefix = f"{what}: " if what else ""
            raise TokenizerError(f"{prefix}{self.describe()}. {self.advise(is_trained)}")
        return self


def count_lost(tokenizer: Tokenizer, texts: Iterable[str]) -> Lost:
    """Count the characters of `texts`, and those that a tokenizer loses::

    lost = count_lost(Tokenizer.load("runs/mine/model"), ["MKTAYIAKQR"])
    print(lost.describe())
    """
    num_characters = num_in_long = num_outside = 0
    longest = tokenizer.longest_word
    for text in texts:
        num_characters += sum(map(len, text.split()))
        for size in tokenizer.find_lost(text):
            if longest is not None and size > longest:
                num_in_long += size
            else:
                num_outside += size
    return Lost(num_characters, num_in_long, num_outside, longest)


def check_known(tokenizer: Tokenizer, texts: Iterable[str], what: str) -> None:
    """Raise TokenizerError if a model's tokenizer loses most of texts, named `what`."""
    count_lost(tokenizer, spread_probe(list(texts))).check(is_trained=False, what=what)


def take_probe(texts: Iterable[str], num_characters: int = PROBE_CHARACTERS) -> Iterator[str]:
    """Yield texts up to `num_characters` in all; the last one is cut."""
    for text in texts:
        yield text[:num_characters]
        num_characters -= len(text)
        if num_characters <= 0:
            return


def spread_probe(texts: list[str], num_characters: int = PROBE_CHARACTERS) -> list[str]:
    """Return texts from all over a list, up to `num_characters` in all."""
    step = max(1, -(-sum(map(len, texts)) // num_characters))
    return list(take_probe(texts[::step], num_characters))
