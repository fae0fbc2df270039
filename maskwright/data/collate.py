"""Collation of planned rows: the position of every token of a batch, for all rows at once.

R rows of L positions, S segments of n texts each: one, or the two of a pair.
`examples/mlm_in_one_file.py` does the same with loops over rows and segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.data.masking import IGNORED
from maskwright.data.pairs import SegmentPair, TokenSource, pairs_per_row
from maskwright.data.rows import Ints, Rows, concat_ranges


@dataclass(frozen=True)
class SpecialIds:
    """The special token ids of rows; `wrap` puts [CLS] and [SEP] around every segment."""

    pad: int
    cls: int
    sep: int
    wrap: bool


@dataclass(frozen=True)
class CollatedPairs:
    """The pairs of R rows of L positions, at most K per row.

    Attributes:
        token_type_ids: [R, L].
        positions: [R, K] the position of its [CLS] in the row, 0 in unused entries.
        labels: [R, K], -100 in unused entries.
    """

    token_type_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class CollatedRows:
    """R rows of L positions before masking; arrays are [R, L], except `cu_seqlens` [N + 1]."""

    ids: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    positions: NDArray[np.int64]
    segment_ids: NDArray[np.int32]
    cu_seqlens: NDArray[np.int32]
    num_tokens: int
    pairs: CollatedPairs | None = None


@dataclass(frozen=True)
class Segments:
    """The positions of the segments of all rows, among R * L.

    Attributes:
        rows: [S] the row of each segment.
        numbers: [S] its index in its row.
        begins: [S] its first position.
        slots: [S] its length in positions, [CLS] and [SEP] included.
        counts: [R] the number of segments of each row.
        used: [R] the number of positions that they fill.
    """

    rows: Ints
    numbers: Ints
    begins: Ints
    slots: Ints
    counts: Ints
    used: Ints

    @classmethod
    def place(cls, slots: Ints, counts: Ints, row_length: int) -> "Segments":
        """Place the segments of each row consecutively, from the start of the row."""
        rows = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        used = np.bincount(rows, slots, len(counts)).astype(np.int64)
        tails = np.cumsum(row_length - used) - (row_length - used)  # unused, before each row
        begins = np.cumsum(slots) - slots + tails[rows]
        return cls(rows, numbers, begins, slots, counts, used)

    def with_tails(self, row_length: int) -> tuple[Ints, Ints]:
        """Return [S + R] lengths and indices of segments and unused tails, in order.

        The tail of a row has the index after its last segment.
        """
        lengths = np.empty(len(self.rows) + len(self.counts), np.int64)
        numbers = np.empty_like(lengths)
        segments = np.arange(len(self.rows)) + self.rows
        tails = np.cumsum(self.counts) + np.arange(len(self.counts))
        lengths[segments], lengths[tails] = self.slots, row_length - self.used
        numbers[segments], numbers[tails] = self.numbers, self.counts
        return lengths, numbers


def collate(
    rows: Rows,
    row_length: int,
    source: TokenSource,
    special: SpecialIds,
    pairs: Sequence[Sequence[SegmentPair]] | None = None,
    with_words: bool = True,
) -> CollatedRows:
    """Write the segments of each row to their positions.

    Args:
        pairs: the pair of texts of each segment, by row; None: each segment is one text.
        with_words: True to read word starts; otherwise every token is a word.
    """
    shape, edge = (len(rows), row_length), int(special.wrap)
    spans = rows.spans[:, None]  # [S, n, 2] start (in the corpus) and length of every text
    if pairs is not None:
        both = [pair.texts for row in pairs for pair in row]
        spans = np.asarray(both, np.int64).reshape(-1, 2, 2)
    lengths = spans[..., 1]
    slots = edge + (lengths + edge).sum(axis=1)
    segments = Segments.place(slots, rows.counts, row_length)
    ends = segments.begins[:, None] + np.cumsum(lengths + edge, axis=1)  # of texts, without [SEP]
    begins = ends - lengths

    ids, word_starts = np.full(shape, special.pad, np.int64), np.ones(shape, bool)
    texts = concat_ranges(begins.reshape(-1), lengths.reshape(-1))
    ranges = [(start, start + length) for start, length in spans.reshape(-1, 2).tolist()]
    if len(texts):
        ids.reshape(-1)[texts] = np.concatenate([source.tokens(*span) for span in ranges])
    if len(texts) and with_words:
        read = [source.word_starts(*span) for span in ranges]
        word_starts.reshape(-1)[texts] = np.concatenate(read)
        # A segment that begins inside a word treats the rest of the word as a separate word.
        word_starts.reshape(-1)[begins[lengths > 0]] = True
    if special.wrap:
        ids.reshape(-1)[segments.begins] = special.cls
        ids.reshape(-1)[ends] = special.sep

    block_lengths, numbers = segments.with_tails(row_length)
    block_ends = np.cumsum(block_lengths)[block_lengths > 0]
    # Few shapes are to be compiled, and flash attention pays for empty segments: a power of two.
    bounds = np.full(max(2, 1 << len(block_ends).bit_length()), ids.size, np.int32)
    bounds[0], bounds[1 : 1 + len(block_ends)] = 0, block_ends
    return CollatedRows(
        ids,
        word_starts,
        positions=concat_ranges(np.zeros_like(block_lengths), block_lengths).reshape(shape),
        segment_ids=np.repeat(numbers.astype(np.int32), block_lengths).reshape(shape),
        cu_seqlens=bounds,
        num_tokens=int(segments.used.sum()),
        pairs=None if pairs is None else _collate_pairs(pairs, segments, begins, lengths, shape),
    )


def _collate_pairs(
    pairs: Sequence[Sequence[SegmentPair]],
    segments: Segments,
    begins: Ints,
    lengths: Ints,
    shape: tuple[int, int],
) -> CollatedPairs:
    """Return the token types, and the [CLS] of each pair that has a label.

    Args:
        begins, lengths: [S, 2] first position and length of the two texts.
    """
    slots, types = (shape[0], pairs_per_row(shape[1])), np.zeros(shape, np.int64)
    positions, labels = np.zeros(slots, np.int64), np.full(slots, IGNORED, np.int64)
    second = concat_ranges(begins[:, 1], lengths[:, 1] + 1)  # and its [SEP]
    types.reshape(-1)[second] = 1
    known = np.asarray([pair.label for row in pairs for pair in row], np.int64)
    labeled = known != IGNORED
    rows, numbers = segments.rows[labeled], segments.numbers[labeled]
    positions[rows, numbers] = segments.begins[labeled] - rows * shape[1]
    labels[rows, numbers] = known[labeled]
    return CollatedPairs(types, positions, labels)
