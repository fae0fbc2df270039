"""A batch: masked rows of packed segments, as tensors of static shapes.

The position of every token is computed for all rows at once; `examples/mlm_in_one_file.py` does the
same with loops over rows and segments. R rows of L positions, S segments of n texts each: one, or
the two of a pair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.attention_context import AttentionContext
from maskwright.data.counter_rng import Purpose, derive_keys, draw_fractions
from maskwright.data.masking import IGNORED, Masker
from maskwright.data.pairs import PairMaker, SegmentPair, pairs_per_row
from maskwright.data.rows import Ints, Rows, TokenSource, concat_ranges


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
        sizes: [S] its length in positions, [CLS] and [SEP] included.
        counts: [R] the number of segments of each row.
        used: [R] the number of positions that they fill.
    """

    rows: Ints
    numbers: Ints
    begins: Ints
    sizes: Ints
    counts: Ints
    used: Ints

    @classmethod
    def place(cls, sizes: Ints, counts: Ints, row_length: int) -> "Segments":
        """Place the segments of each row consecutively, from the start of the row."""
        rows = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        used = np.bincount(rows, sizes, len(counts)).astype(np.int64)
        tails = np.cumsum(row_length - used) - (row_length - used)  # unused, before each row
        begins = np.cumsum(sizes) - sizes + tails[rows]
        return cls(rows, numbers, begins, sizes, counts, used)

    def with_tails(self, row_length: int) -> tuple[Ints, Ints]:
        """Return [S + R] lengths and indices of segments and unused tails, in order.

        The tail of a row has the index after its last segment.
        """
        lengths = np.empty(len(self.rows) + len(self.counts), np.int64)
        numbers = np.empty_like(lengths)
        segments = np.arange(len(self.rows)) + self.rows
        tails = np.cumsum(self.counts) + np.arange(len(self.counts))
        lengths[segments], lengths[tails] = self.sizes, row_length - self.used
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
    sizes = edge + (lengths + edge).sum(axis=1)
    segments = Segments.place(sizes, rows.counts, row_length)
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

    part_lengths, numbers = segments.with_tails(row_length)
    part_ends = np.cumsum(part_lengths)[part_lengths > 0]
    # Few shapes are to be compiled, and flash attention pays for empty segments: a power of two.
    bounds = np.full(max(2, 1 << len(part_ends).bit_length()), ids.size, np.int32)
    bounds[0], bounds[1 : 1 + len(part_ends)] = 0, part_ends
    return CollatedRows(
        ids,
        word_starts,
        positions=concat_ranges(np.zeros_like(part_lengths), part_lengths).reshape(shape),
        segment_ids=np.repeat(numbers.astype(np.int32), part_lengths).reshape(shape),
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
    entries, types = (shape[0], pairs_per_row(shape[1])), np.zeros(shape, np.int64)
    positions, labels = np.zeros(entries, np.int64), np.full(entries, IGNORED, np.int64)
    second = concat_ranges(begins[:, 1], lengths[:, 1] + 1)  # and its [SEP]
    types.reshape(-1)[second] = 1
    known = np.asarray([pair.label for row in pairs for pair in row], np.int64)
    labeled = known != IGNORED
    rows, numbers = segments.rows[labeled], segments.numbers[labeled]
    positions[rows, numbers] = segments.begins[labeled] - rows * shape[1]
    labels[rows, numbers] = known[labeled]
    return CollatedPairs(types, positions, labels)


@dataclass(frozen=True)
class Batch:
    """R rows of L positions (T = R * L), N segments, M entries for predictions, P for pairs.

    The unused tail of a row is a separate segment of [PAD]: padding attends only to padding and no
    token attends to it, so layers need no padding mask.

    Attributes:
        input_ids: [T] int64, masked.
        context: the boundaries of the segments, and whether the batch is causal: no token is
            masked and every token is predicted from the previous ones. Its ``cu_seqlens`` are
            padded by repeating T.
        masked_positions: [M] int64 into T, 0 in unused entries.
        masked_labels: [M] int64, -100 in unused entries.
        masked_draws: [M] float32 in [0, 1), a random number for drawing a token there, as ELECTRA's
            generator does.
        num_tokens: the number of positions without padding.
        num_predictions: the number of masked labels that are not -100.
        token_type_ids: [T] int64, 1 in the second text of a pair and its [SEP], else 0; this and
            the next two are None if segments are single texts.
        pair_positions: [P] int64 into T, the [CLS] of a pair, 0 in unused entries.
        pair_labels: [P] int64, 0 = the second text follows the first, 1 = it does not, -100 in
            unused entries.
        num_pairs: the number of pair labels that are not -100.
        candidate_ids: [C] int64, the tokens of the softmax of every prediction, with
            ``train.num_candidates`` (`MLMHead.choose`); None: all.
        candidate_offsets: [C] float32, added to their logits: the log of the number of tokens that
            each candidate represents.
    """

    input_ids: Tensor
    context: AttentionContext
    masked_positions: Tensor
    masked_labels: Tensor
    masked_draws: Tensor
    num_tokens: int
    num_predictions: int
    token_type_ids: Tensor | None = None
    pair_positions: Tensor | None = None
    pair_labels: Tensor | None = None
    num_pairs: int = 0
    candidate_ids: Tensor | None = None
    candidate_offsets: Tensor | None = None

    def to(self, device: torch.device, copy: bool = False) -> "Batch":
        """Return the same batch with its tensors on `device`, copied asynchronously."""
        return self._with_tensors(lambda tensor: tensor.to(device, non_blocking=True, copy=copy))

    def fill(self, other: "Batch") -> None:
        """Copy the tensors of a batch of the same shape into those of this one."""
        for own, new in zip(self.tensors(), other.tensors(), strict=True):
            own.copy_(new, non_blocking=True)

    def tensors(self) -> list[Tensor]:
        """Return all tensors of the batch."""
        found = list[Tensor]()
        self._with_tensors(lambda tensor: found.append(tensor) or tensor)
        return found

    def with_bounds(self, count: int) -> "Batch":
        """Return the same batch with `count` segment boundaries, by more empty segments."""
        bounds = self.context.cu_seqlens
        padded = bounds.new_full((count,), len(self.input_ids))
        padded[: len(bounds)] = bounds
        return replace(self, context=replace(self.context, cu_seqlens=padded))

    def pin(self) -> "Batch":
        """Return the same batch in pinned memory, for copies that overlap with computation."""
        return self._with_tensors(Tensor.pin_memory)

    def masked_tokens(self) -> tuple[Tensor, Tensor]:
        """Return positions (into T) and ids of the masked tokens in text order: [M], [M]."""
        used = self.masked_labels != IGNORED
        positions, labels = self.masked_positions[used], self.masked_labels[used]
        order = positions.argsort()
        return positions[order], labels[order]

    def _with_tensors(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        fields = vars(self).items()
        changed = {name: change(value) for name, value in fields if isinstance(value, Tensor)}
        return replace(self, context=self.context.map_tensors(change), **changed)


def build_batch(
    rows: Rows,
    row_length: int,
    source: TokenSource,
    special: SpecialIds,
    masker: Masker,
    rate: float,
    seed: int,
    is_causal: bool = False,
    pair_maker: PairMaker | None = None,
) -> Batch:
    """Collate and mask rows; masks and pairs are functions of (seed, epoch, row number)."""
    keys = derive_keys(seed, rows.epochs, rows.numbers)
    pairs = pair_maker.make_pairs(rows, row_length, keys, source) if pair_maker else None
    with_words = masker.strategy.needs_words and not is_causal
    clean = collate(rows, row_length, source, special, pairs, with_words)
    if is_causal:
        masked = masker.predict_all(clean.ids)
    else:
        masked = masker.mask(clean.ids, clean.word_starts, keys, rate)
    draws = draw_fractions(keys, Purpose.SAMPLING, masked.positions)
    used = masked.labels != IGNORED
    masked_positions = _count_through(masked.positions, used, row_length)
    batch = Batch(
        input_ids=torch.from_numpy(masked.input_ids.reshape(-1)),
        context=AttentionContext(
            positions=torch.from_numpy(clean.positions.reshape(-1)),
            segment_ids=torch.from_numpy(clean.segment_ids.reshape(-1)),
            cu_seqlens=torch.from_numpy(clean.cu_seqlens),
            max_seqlen=row_length,
            row_length=row_length,
            is_causal=is_causal,
        ),
        masked_positions=torch.from_numpy(masked_positions),
        masked_labels=torch.from_numpy(masked.labels.reshape(-1)),
        masked_draws=torch.from_numpy(draws.reshape(-1)),
        num_tokens=clean.num_tokens,
        num_predictions=int(used.sum()),
    )
    return batch if clean.pairs is None else _add_pairs(batch, clean.pairs)


def _add_pairs(batch: Batch, pairs: CollatedPairs) -> Batch:
    used = pairs.labels != IGNORED
    pair_positions = _count_through(pairs.positions, used, batch.context.row_length)
    return replace(
        batch,
        token_type_ids=torch.from_numpy(pairs.token_type_ids.reshape(-1)),
        pair_positions=torch.from_numpy(pair_positions),
        pair_labels=torch.from_numpy(pairs.labels.reshape(-1)),
        num_pairs=int(used.sum()),
    )


def _count_through(
    positions: NDArray[np.int64], used: NDArray[np.bool_], row_length: int
) -> NDArray[np.int64]:
    """Convert [R, K] positions in rows to [R * K] positions in the batch; 0 in unused entries."""
    row_starts = np.arange(len(positions))[:, None] * row_length
    return np.where(used, positions + row_starts, 0).reshape(-1)
