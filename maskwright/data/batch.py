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
    """T = R * L token slots in R rows, N segments, M slots for predictions.

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
        num_predictions: labels that are not -100.
        is_causal: whether nothing is hidden but the future: every token is predicted from those
            before it.
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

    def to(self, device: torch.device) -> "Batch":
        """The same batch with its tensors on `device`, copied without waiting."""
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class CleanRows:
    """R rows of L slots before masking; arrays are [R, L] except `cu_seqlens` [N + 1]."""

    ids: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    positions: NDArray[np.int64]
    segment_ids: NDArray[np.int32]
    cu_seqlens: NDArray[np.int32]
    num_tokens: int


def lay_out(
    rows: Sequence[Row], row_length: int, source: TokenSource, special: SpecialIds
) -> CleanRows:
    """Writes the segments of each row into its slots."""
    shape = (len(rows), row_length)
    ids = np.full(shape, special.pad, np.int64)
    word_starts, positions = np.ones(shape, bool), np.zeros(shape, np.int64)
    segment_ids = np.zeros(shape, np.int32)
    places = np.arange(row_length)
    ends, num_tokens = [0], 0
    edge = int(special.wrap)
    for r, row in enumerate(rows):
        at = 0
        for number, (start, length) in enumerate(row.segments):
            end = at + length + 2 * edge
            if special.wrap:
                ids[r, at], ids[r, end - 1] = special.cls, special.sep
            ids[r, at + edge : end - edge] = source.tokens(start, start + length)
            word_starts[r, at + edge : end - edge] = source.word_starts(start, start + length)
            word_starts[r, at + edge] = True  # a word cut by the segment begins anew
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
    return CleanRows(ids, word_starts, positions, segment_ids, cu_seqlens, num_tokens)


def build_batch(
    rows: Sequence[Row],
    row_length: int,
    source: TokenSource,
    special: SpecialIds,
    masker: Masker,
    rate: float,
    seed: int,
    is_causal: bool = False,
) -> Batch:
    """Lays out and masks rows. A row's masks depend on (seed, epoch, row number) alone."""
    clean = lay_out(rows, row_length, source, special)
    keys = derive_keys(seed, [row.epoch for row in rows], [row.number for row in rows])
    if is_causal:
        masked = masker.predict_all(clean.ids)
    else:
        masked = masker.mask(clean.ids, clean.word_starts, keys, rate)
    first_slots = np.arange(len(rows))[:, None] * row_length
    draws = draw_fractions(keys, Purpose.SAMPLING, masked.positions)
    used = masked.labels != IGNORED
    masked_positions = np.where(used, masked.positions + first_slots, 0)
    return Batch(
        input_ids=torch.from_numpy(masked.input_ids.reshape(-1)),
        positions=torch.from_numpy(clean.positions.reshape(-1)),
        segment_ids=torch.from_numpy(clean.segment_ids.reshape(-1)),
        cu_seqlens=torch.from_numpy(clean.cu_seqlens),
        masked_positions=torch.from_numpy(masked_positions.reshape(-1)),
        masked_labels=torch.from_numpy(masked.labels.reshape(-1)),
        masked_draws=torch.from_numpy(draws.reshape(-1)),
        row_length=row_length,
        num_tokens=clean.num_tokens,
        num_predictions=int(used.sum()),
        is_causal=is_causal,
    )
