"""Two texts in one segment, and whether the second follows the first.

A segment of the planner, a run of tokens of one document, is cut into A and B. *Next-sentence
prediction* (Devlin et al., "BERT", 2019, arXiv 1810.04805) puts in the place of B, half of the
time, as many tokens of another document; *sentence-order prediction* (Lan et al., "ALBERT", 2020,
arXiv 1909.11942) swaps the two instead. Everything is a function of (seed, epoch, row, segment),
and no segment changes its length, so that packing has nothing to do with what is in a pair.

- A corpus knows words but not sentences. So "sentence" means here what it means in BERT, "an
  arbitrary span of contiguous text": the cut is one of the beginnings of words in the middle half
  of the segment, each as likely, or the nearest one if there is none.
- What stands for B must not be told from a true B by its edges. It, too, begins with a word but
  not with its document, and ends with its document just if the true one does.
- BERT puts the text that B was taken from back into the data. Here it is skipped in this epoch and
  others of its kind are seen twice, so that a token is seen once an epoch in the mean.
- In a segment that begins or ends within a word, swapped texts could be told by that word alone. It
  has no label where the order is to be learned; its texts stay in their order.
- A segment of fewer than `MIN_TOKENS` tokens is all A, B is empty, and there is no label. Nor is
  there one for the shortest segments of a row that has more than `pairs_per_row` of them.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.config import PairKind
from maskwright.data.counter_rng import Bits, Purpose, draw_bits, to_unit
from maskwright.data.masking import IGNORED
from maskwright.data.rows import Ints, Rows
from maskwright.errors import ShardError

FOLLOWS, FOLLOWS_NOT = 0, 1  # as in BertForPreTraining and AlbertForPreTraining
MIN_TOKENS = 4
ATTEMPTS = 32  # to find a text of another document before the true one is kept

Span = tuple[int, int]  # start in tokens of the whole corpus, and length


class WordSource(Protocol):
    """Where words begin in a corpus, by position."""

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class SegmentPair:
    """What stands in a segment: two texts in their order, and `FOLLOWS`, `FOLLOWS_NOT` or -100."""

    texts: tuple[Span, Span]
    label: int


def pairs_per_row(row_length: int) -> int:
    """The most pairs of a row that have a label; a bound, so that arrays have a fixed size.

    What is predicted from a pair costs about as much as one hidden token, so there is not one slot
    for each of the many segments that a row may have at most.
    """
    return max(1, row_length // 16)


class PairMaker:
    """Makes pairs of segments.

    Args:
        kind: where a B that does not follow comes from.
        document_lengths: [D] of the corpus, in tokens.

    Raises:
        ShardError: another document is wanted, and there is none.
    """

    def __init__(self, kind: PairKind, document_lengths: Ints) -> None:
        self.kind, self._lengths = kind, document_lengths
        self._ends = np.cumsum(document_lengths)
        if kind == "next" and np.count_nonzero(document_lengths) < 2:
            raise ShardError(
                "the prepared data holds fewer than 2 documents, so data.pairs = next has no other "
                "one to take a text from: give more documents (corpus.documents says what one is; "
                "for the validation split raise corpus.valid_fraction), or take data.pairs = order"
            )

    def make_pairs(
        self, rows: Rows, row_length: int, keys: Bits, source: WordSource
    ) -> list[list[SegmentPair]]:
        """For each row a pair for each of its segments.

        Args:
            keys: [R], each a hash of (seed, epoch, row).
        """
        numbers = np.arange(rows.counts.max(initial=0))
        cuts = to_unit(draw_bits(keys, Purpose.PAIR_SPLIT, numbers))
        is_turned = to_unit(draw_bits(keys, Purpose.PAIR_LABEL, numbers)) < 0.5
        most = pairs_per_row(row_length)
        pairs: list[list[SegmentPair]] = []
        for r, row in enumerate(rows):
            pairs.append([])
            for number, segment in enumerate(row.segments):
                true = split_segment(segment, cuts[r, number], source)
                if number >= most or not true[1][1]:
                    pair = SegmentPair(true, IGNORED)
                elif self.kind == "order":
                    pair = self._swap(true, is_turned[r, number], source)
                elif is_turned[r, number]:
                    pair = self._replace_second(true, keys[r : r + 1], number, source)
                else:
                    pair = SegmentPair(true, FOLLOWS)
                pairs[r].append(pair)
        return pairs

    def _replace_second(
        self, true: tuple[Span, Span], key: Bits, number: int, source: WordSource
    ) -> SegmentPair:
        """A and a text of another document; the true pair, if no attempt finds one of its length.

        Documents are drawn by their lengths, since tokens are drawn and not documents.
        """
        first, (start, length) = true
        own = np.searchsorted(self._ends, start, side="right")
        attempts = number * ATTEMPTS + np.arange(ATTEMPTS)
        drawn = to_unit(draw_bits(key, Purpose.PAIR_SOURCE, attempts))[0]
        positions = np.minimum((drawn * self._ends[-1]).astype(np.int64), self._ends[-1] - 1)
        documents = np.searchsorted(self._ends, positions, side="right")
        ends = self._ends[documents]
        if self._is_end(start + length):
            starts, fits = ends - length, documents != own
        else:
            starts, fits = positions, (documents != own) & (positions + length < ends)
        found = starts[fits & (starts > ends - self._lengths[documents])].tolist()
        if not found:
            return SegmentPair(true, FOLLOWS)
        begins_word = (start for start in found if source.word_starts(start, start + 1)[0])
        return SegmentPair((first, (next(begins_word, found[0]), length)), FOLLOWS_NOT)

    def _swap(self, true: tuple[Span, Span], is_turned: bool, source: WordSource) -> SegmentPair:
        """The texts in their order or not; without a label where half a word would tell."""
        first, second = true
        start, end = first[0], sum(second)
        ends_within = not self._is_end(end) and not source.word_starts(end, end + 1)[0]
        if ends_within or not source.word_starts(start, start + 1)[0]:
            return SegmentPair(true, IGNORED)
        if is_turned:
            return SegmentPair((second, first), FOLLOWS_NOT)
        return SegmentPair(true, FOLLOWS)

    def _is_end(self, position: int) -> bool:
        """Whether a document ends before `position`."""
        return bool(self._ends[np.searchsorted(self._ends, position)] == position)


def split_segment(segment: Span, cut: float, source: WordSource) -> tuple[Span, Span]:
    """A and B of a segment, B empty if it is too short for two.

    Args:
        cut: in [0, 1), where in the middle half.
    """
    start, length = segment
    if length < MIN_TOKENS:
        return segment, (start + length, 0)
    least = length // 4
    wanted = least + int(cut * (length - 2 * least + 1))
    beginnings = np.flatnonzero(source.word_starts(start + 1, start + length)) + 1
    inside = beginnings[(beginnings >= least) & (beginnings <= length - least)]
    if len(inside):
        wanted = int(inside[int(cut * len(inside))])
    elif len(beginnings):
        wanted = int(beginnings[np.abs(beginnings - wanted).argmin()])
    return (start, wanted), (start + wanted, length - wanted)
