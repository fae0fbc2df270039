"""Samples of what a model filled in, as a table: a row for each text, a column for each time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from maskwright.train.panel import split_sample

# A line of `maskwright.inference.samples` in which one word is hidden, and how masks are written.
_WORD = re.compile(
    r"(?P<sign>[✓✗]) (?P<text>.*)  →  (?P<guesses>.*)  \(was: (?P<word>.*)\)", re.DOTALL
)
_MASK = re.compile(r"\[MASK\]|<mask>")


@dataclass(frozen=True)
class SampleRow:
    """A text, the word that was hidden in it, and what was guessed: (right or wrong, guesses)."""

    before: str
    word: str
    after: str
    guesses: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def tabulate_samples(
    picked: Sequence[tuple[str, Sequence[str]]],
) -> tuple[list[str], list[SampleRow]] | None:
    """Return the times and the rows; None if samples hide more than single words.

    Args:
        picked: when, and the lines of then.
    """
    rows: dict[tuple[str, str], SampleRow] = {}
    for number, (_, lines) in enumerate(picked):
        for line in lines:
            found = _WORD.fullmatch(line)
            if found is None:
                return None
            text, word = found["text"], found["word"]
            before, _, after = _split_at_mask(text, word)
            row = rows.setdefault((text, word), SampleRow(before, word, after))
            row.guesses.extend([("", "")] * (number - len(row.guesses)))
            kind = "right" if found["sign"] == "✓" else "wrong"
            row.guesses.extend([(kind, found["guesses"])] * (len(row.guesses) == number))
    for row in rows.values():
        row.guesses.extend([("", "")] * (len(picked) - len(row.guesses)))
    return [when for when, _ in picked], list(rows.values())


def mark_lines(lines: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The parts of each line with the class that colors them: right, wrong, or neither."""
    return [list(split_sample(line)) for line in lines]


def _split_at_mask(text: str, word: str) -> tuple[str, str, str]:
    found = _MASK.search(text)
    if found is None:  # another mask token: the word stands behind the text
        return f"{text} ", word, ""
    return text[: found.start()], word, text[found.end() :]
