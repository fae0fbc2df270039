"""What a masked language model is asked to score texts: a row with masks, and a place in it.

An answer is a token at a question's place. Equal questions are asked once, also for different
answers: two sentences that differ in the hidden word ask the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Metric = Literal["original", "within_word_l2r"]


@dataclass
class Questions:
    """All different questions about some texts, and the answers whose probabilities are wanted.

    Attributes:
        rows: of each question the ids with masks.
        places: of each question the place asked for.
        asked: of each answer its question.
        labels: of each answer its token.
    """

    mask_id: int
    rows: list[list[int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def add_text(
        self, row: list[int], first: int, word_starts: Sequence[bool], metric: Metric
    ) -> None:
        """One question and answer for each token of a text, in order.

        Args:
            row: the text's ids with what is around them.
            first: where in `row` the text begins.
            word_starts: of each of its tokens.
            metric: whether the later tokens of the same word are hidden too.
        """
        ends = find_ends(word_starts, metric)
        for place, end in enumerate(ends, start=first):
            stop = first + end
            masked = [*row[:place], *[self.mask_id] * (stop - place), *row[stop:]]
            self.asked.append(self._find(masked, place))
            self.labels.append(row[place])

    def _find(self, masked: list[int], place: int) -> int:
        key = (place, *masked)
        number = self._numbers.setdefault(key, len(self.rows))
        if number == len(self.rows):
            self.rows.append(masked)
            self.places.append(place)
        return number


def find_ends(word_starts: Sequence[bool], metric: Metric) -> list[int]:
    """For each token where what is hidden with it ends: behind it, or behind its word."""
    count = len(word_starts)
    if metric == "original":
        return list(range(1, count + 1))
    ends = [count] * count
    for place in range(count - 2, -1, -1):
        ends[place] = place + 1 if word_starts[place + 1] else ends[place + 1]
    return ends
