"""Pairs of texts in one segment, labeled by whether the second follows the first.

A segment of the planner, consecutive tokens of one document, is cut into A and B. *Next-sentence
prediction* (Devlin et al., "BERT", 2019, arXiv 1810.04805) replaces B in half of the pairs by the
same number of tokens of another document; *sentence-order prediction* (Lan et al., "ALBERT", 2020,
arXiv 1909.11942) swaps the two instead. Pairs are a function of (seed, epoch, row, segment), and
segments keep their length, so packing does not depend on pairs.

- A corpus has word starts but no sentence boundaries. "Sentence" therefore has the meaning of BERT,
  "an arbitrary span of contiguous text": the cut is drawn uniformly from the word starts in the
  middle half of the segment, or is the nearest word start if there is none.
- The edges of a replaced B must not reveal it. It also begins with a word but not at the start of
  its document, and ends at the end of its document only if the true B does.
- BERT uses the B that was replaced in another pair. Here it is skipped in this epoch and other text
  is used twice, so a token is used once per epoch on average.
- In a segment that begins or ends within a word, that word alone would reveal a swap. For
  sentence order, such a segment has no label, and its texts keep their order.
- In a segment of fewer than `MIN_TOKENS` tokens, B is empty and there is no label. The shortest
  segments of a row with more than `pairs_per_row` segments have no label either.
"""

from dataclasses import dataclass

import numpy as np

from maskwright.data.config import PairKind
from maskwright.data.counter_rng import Bits, Purpose, draw_bits, to_unit
from maskwright.data.masking import IGNORED
from maskwright.data.rows import Ints, Rows, TokenSource
from maskwright.errors import ShardError

FOLLOWS, FOLLOWS_NOT = 0, 1  # as in BertForPreTraining and AlbertForPreTraining
MIN_TOKENS = 4
ATTEMPTS = 32  # tries to draw a text of another document, before the true one is kept

Span = tuple[int, int]  # start in tokens of the whole corpus, and length


@dataclass(frozen=True)
class SegmentPair:
    """The two texts of a segment, in order, and a label: `FOLLOWS`, `FOLLOWS_NOT` or -100."""

    texts: tuple[Span, Span]
    label: int


def pairs_per_row(row_length: int) -> int:
    """Return the maximum number of labeled pairs in a row, which fixes the shape of arrays.

    An entry for a pair costs about as much as one for a masked token, so the maximum is lower than
    that of segments in a row.
    """
    return max(1, row_length // 16)


class PairMaker:
    """A maker of pairs from segments.

    Args:
        kind: next (B is from another document) or order (A and B are swapped).
        document_lengths: [D] the number of tokens of each document of the corpus.

    Raises:
        ShardError: `kind` is next, and the corpus has fewer than two documents.
    """

    def __init__(self, kind: PairKind, document_lengths: Ints) -> None:
        self.kind, self._lengths = kind, document_lengths
        self._ends = np.cumsum(document_lengths)
        if kind == "next" and np.count_nonzero(document_lengths) < 2:
            raise ShardError(
                "the prepared data holds fewer than 2 documents, but data.pairs = next takes texts "
                "from another document. Add documents (corpus.documents defines a document; for "
                "the validation split raise corpus.valid_fraction), or set data.pairs = order"
            )

    def make_pairs(
        self, rows: Rows, row_length: int, keys: Bits, source: TokenSource
    ) -> list[list[SegmentPair]]:
        """Return a list of pairs for each row, one for each of its segments.

        Args:
            keys: [R], each a hash of (seed, epoch, row).
        """
        numbers = np.arange(rows.counts.max(initial=0))
        cuts = to_unit(draw_bits(keys, Purpose.PAIR_SPLIT, numbers))
        is_changed = to_unit(draw_bits(keys, Purpose.PAIR_LABEL, numbers)) < 0.5
        most = pairs_per_row(row_length)
        pairs: list[list[SegmentPair]] = []
        for r, row in enumerate(rows):
            pairs.append([])
            for number, segment in enumerate(row.segments):
                true = split_segment(segment, cuts[r, number], source)
                if number >= most or not true[1][1]:
                    pair = SegmentPair(true, IGNORED)
                elif self.kind == "order":
                    pair = self._swap(true, is_changed[r, number], source)
                elif is_changed[r, number]:
                    pair = self._replace_second(true, keys[r : r + 1], number, source)
                else:
                    pair = SegmentPair(true, FOLLOWS)
                pairs[r].append(pair)
        return pairs

    def _replace_second(
        self, true: tuple[Span, Span], key: Bits, number: int, source: TokenSource
    ) -> SegmentPair:
        """Return A and a text of another document, or the true pair if all attempts fail.

        Documents are drawn with probabilities proportional to their lengths.
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

    def _swap(self, true: tuple[Span, Span], is_changed: bool, source: TokenSource) -> SegmentPair:
        """Return the texts, swapped if `is_changed`, or unlabeled if a cut word would reveal it."""
        first, second = true
        start, end = first[0], sum(second)
        ends_within = not self._is_end(end) and not source.word_starts(end, end + 1)[0]
        if ends_within or not source.word_starts(start, start + 1)[0]:
            return SegmentPair(true, IGNORED)
        if is_changed:
            return SegmentPair((second, first), FOLLOWS_NOT)
        return SegmentPair(true, FOLLOWS)

    def _is_end(self, position: int) -> bool:
        """Return True if a document ends before `position`."""
        return bool(self._ends[np.searchsorted(self._ends, position)] == position)


def split_segment(segment: Span, cut: float, source: TokenSource) -> tuple[Span, Span]:
    """Return A and B of a segment; B is empty if the segment is too short.

    Args:
        cut: the relative position of the cut in the middle half, in [0, 1).
    """
    start, length = segment
    if length < MIN_TOKENS:
        return segment, (start + length, 0)
    least = length // 4
    split = least + int(cut * (length - 2 * least + 1))
    beginnings = np.flatnonzero(source.word_starts(start + 1, start + length)) + 1
    inside = beginnings[(beginnings >= least) & (beginnings <= length - least)]
    if len(inside):
        split = int(inside[int(cut * len(inside))])
    elif len(beginnings):
        split = int(beginnings[np.abs(beginnings - split).argmin()])
    return (start, split), (start + split, length - split)
