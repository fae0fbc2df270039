"""A batch: rows of packed segments, masked, as tensors of static shapes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.draws import Purpose, derive_keys, draw_fractions
from maskwright.data.masking.corruption import IGNORED, Masker
from maskwright.data.pairs import PairMaker, SegmentPair, pairs_per_row
from maskwright.data.rows import Row, segments_per_row


class TokenSource(Protocol):
    """Tokens of a corpus by position, as `maskwright.shards` reads them."""

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger]: ...

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class SpecialIds:
    """The ids that rows are built with; `wrap` puts [CLS] and [SEP] around every segment."""

    pad: int
    cls: int
    sep: int
    wrap: bool


@dataclass(frozen=True)
class Batch:
    """T = R * L token slots in R rows, N segments, M slots for predictions, P for pairs.

    The unused tail of a row is a segment of [PAD] of its own: padding attends to padding, no
    token attends to it, and no layer has to know about it.

    Attributes:
        input_ids: [T] int64, masked.
        positions: [T] int64, place within the segment.
        segment_ids: [T] int32, number of the segment within its row.
        cu_seqlens: [N + 1] int32, where segments begin and end in T; padded by repeating T.
        masked_positions: [M] int64 into T, 0 in unused slots.
        masked_labels: [M] int64, -100 in unused slots.
        masked_draws: [M] float32 in [0, 1), a random number for whoever draws a token there.
        row_length: L; no segment crosses a row.
        num_tokens: slots that hold a token and not padding.
        num_predictions: masked labels that are not -100.
        is_causal: whether nothing is hidden but the future: every token is predicted from those
            before it.
        token_type_ids: [T] int64, 1 in the second text of a pair and its [SEP], else 0; None, as
            the fields below, where segments are no pairs.
        pair_positions: [P] int64 into T, the [CLS] of a pair, 0 in unused slots.
        pair_labels: [P] int64, 0 = the second text follows the first, 1 = it does not, -100 in
            unused slots.
        num_pairs: pair labels that are not -100.
    """

    input_ids: Tensor
    positions: Tensor
    segment_ids: Tensor
    cu_seqlens: Tensor
    masked_positions: Tensor
    masked_labels: Tensor
    masked_draws: Tensor
    row_length: int
    num_tokens: int
    num_predictions: int
    is_causal: bool = False
    token_type_ids: Tensor | None = None
    pair_positions: Tensor | None = None
    pair_labels: Tensor | None = None
    num_pairs: int = 0

    def to(self, device: torch.device) -> "Batch":
        """The same batch with its tensors on `device`, copied without waiting."""
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class PlacedPairs:
    """The pairs of R rows of L slots, at most K in each.

    Attributes:
        token_type_ids: [R, L].
        positions: [R, K] where in the row its [CLS] is, 0 in unused slots.
        labels: [R, K], -100 in unused slots.
    """

    token_type_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]

    @classmethod
    def empty(cls, num_rows: int, row_length: int) -> "PlacedPairs":
        """Rows without a pair, to be filled."""
        slots = (num_rows, pairs_per_row(row_length))
        types = np.zeros((num_rows, row_length), np.int64)
        return cls(types, np.zeros(slots, np.int64), np.full(slots, IGNORED, np.int64))


@dataclass(frozen=True)
class CleanRows:
    """R rows of L slots before masking; arrays are [R, L] except `cu_seqlens` [N + 1]."""

    ids: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    positions: NDArray[np.int64]
    segment_ids: NDArray[np.int32]
    cu_seqlens: NDArray[np.int32]
    num_tokens: int
    pairs: PlacedPairs | None = None


def lay_out(
    rows: Sequence[Row],
    row_length: int,
    source: TokenSource,
    special: SpecialIds,
    pairs: Sequence[Sequence[SegmentPair]] | None = None,
) -> CleanRows:
    """Writes the segments of each row into its slots.

    Args:
        pairs: for each row, its segments as pairs of texts; None: each is one text.
    """
    shape = (len(rows), row_length)
    ids = np.full(shape, special.pad, np.int64)
    word_starts, positions = np.ones(shape, bool), np.zeros(shape, np.int64)
    segment_ids = np.zeros(shape, np.int32)
    placed = None if pairs is None else PlacedPairs.empty(*shape)
    places = np.arange(row_length)
    ends, num_tokens = [0], 0
    for r, row in enumerate(rows):
        at = 0
        for number, segment in enumerate(row.segments):
            if placed is None or pairs is None:
                texts = (segment,)
            else:
                texts = pairs[r][number].texts
                _place_pair(placed, r, number, at, pairs[r][number])
            end = _write_texts(ids[r], word_starts[r], at, texts, source, special)
            positions[r, at:end] = places[: end - at]
            segment_ids[r, at:end] = number
            ends.append(r * row_length + end)
            at = end
        num_tokens += at
        if at < row_length:
            positions[r, at:] = places[: row_length - at]
            segment_ids[r, at:] = len(row.segments)
            ends.append((r + 1) * row_length)
    most = len(rows) * (segments_per_row(row_length) + 1)
    ends += [len(rows) * row_length] * (most + 1 - len(ends))
    cu_seqlens = np.asarray(ends, np.int32)
    return CleanRows(ids, word_starts, positions, segment_ids, cu_seqlens, num_tokens, placed)


def _write_texts(
    ids: NDArray[np.int64],
    word_starts: NDArray[np.bool_],
    at: int,
    texts: Sequence[tuple[int, int]],
    source: TokenSource,
    special: SpecialIds,
) -> int:
    """Writes [CLS] and texts, each with its [SEP], into a row from slot `at` on; where it ends."""
    edge = int(special.wrap)
    if special.wrap:
        ids[at] = special.cls
    at += edge
    for start, length in texts:
        end = at + length
        if length:
            ids[at:end] = source.tokens(start, start + length)
            word_starts[at:end] = source.word_starts(start, start + length)
            word_starts[at] = True  # a word cut by the segment begins anew
        if special.wrap:
            ids[end] = special.sep
        at = end + edge
    return at


def _place_pair(placed: PlacedPairs, row: int, number: int, at: int, pair: SegmentPair) -> None:
    """Notes the pair whose [CLS] is in slot `at`; one without a label needs no slot."""
    (_, first), (_, second) = pair.texts
    begin = at + first + 2
    placed.token_type_ids[row, begin : begin + second + 1] = 1
    if pair.label != IGNORED:
        placed.positions[row, number], placed.labels[row, number] = at, pair.label


def build_batch(
    rows: Sequence[Row],
    row_length: int,
    source: TokenSource,
    special: SpecialIds,
    masker: Masker,
    rate: float,
    seed: int,
    is_causal: bool = False,
    pair_maker: PairMaker | None = None,
) -> Batch:
    """Lays out and masks rows. Masks and pairs of one depend on (seed, epoch, row number) alone."""
    keys = derive_keys(seed, [row.epoch for row in rows], [row.number for row in rows])
    pairs = pair_maker.make_pairs(rows, row_length, keys, source) if pair_maker else None
    clean = lay_out(rows, row_length, source, special, pairs)
    if is_causal:
        masked = masker.predict_all(clean.ids)
    else:
        masked = masker.mask(clean.ids, clean.word_starts, keys, rate)
    draws = draw_fractions(keys, Purpose.SAMPLING, masked.positions)
    used = masked.labels != IGNORED
    masked_positions = _count_through(masked.positions, used, row_length)
    batch = Batch(
        input_ids=torch.from_numpy(masked.input_ids.reshape(-1)),
        positions=torch.from_numpy(clean.positions.reshape(-1)),
        segment_ids=torch.from_numpy(clean.segment_ids.reshape(-1)),
        cu_seqlens=torch.from_numpy(clean.cu_seqlens),
        masked_positions=torch.from_numpy(masked_positions),
        masked_labels=torch.from_numpy(masked.labels.reshape(-1)),
        masked_draws=torch.from_numpy(draws.reshape(-1)),
        row_length=row_length,
        num_tokens=clean.num_tokens,
        num_predictions=int(used.sum()),
        is_causal=is_causal,
    )
    return batch if clean.pairs is None else _add_pairs(batch, clean.pairs)


def _add_pairs(batch: Batch, pairs: PlacedPairs) -> Batch:
    used = pairs.labels != IGNORED
    pair_positions = _count_through(pairs.positions, used, batch.row_length)
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
    """[R, K] places in rows as places in all slots [R * K], 0 where none is used."""
    first_slots = np.arange(len(positions))[:, None] * row_length
    return np.where(used, positions + first_slots, 0).reshape(-1)
