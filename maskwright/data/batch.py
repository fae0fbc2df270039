"""A batch: masked rows of packed segments, as tensors of static shapes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.attention_context import AttentionContext
from maskwright.data.collate import CollatedPairs, SpecialIds, collate
from maskwright.data.counter_rng import Purpose, derive_keys, draw_fractions
from maskwright.data.masking import IGNORED, Masker
from maskwright.data.pairs import PairMaker, TokenSource
from maskwright.data.rows import Rows


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
        masked_draws: [M] float32 in [0, 1), a random number for sampling a token there.
        num_tokens: the number of positions without padding.
        num_predictions: the number of masked labels that are not -100.
        token_type_ids: [T] int64, 1 in the second text of a pair and its [SEP], else 0; this and
            the next two are None if segments are single texts.
        pair_positions: [P] int64 into T, the [CLS] of a pair, 0 in unused entries.
        pair_labels: [P] int64, 0 = the second text follows the first, 1 = it does not, -100 in
            unused entries.
        num_pairs: the number of pair labels that are not -100.
        candidate_ids: [C] int64, the tokens of the softmax of every prediction; None: all.
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
    first_slots = np.arange(len(positions))[:, None] * row_length
    return np.where(used, positions + first_slots, 0).reshape(-1)
