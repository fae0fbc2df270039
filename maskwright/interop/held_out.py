"""Held-out text with pinned masks in it, as padded rows: what a quantized model is judged by.

The masks are those of every validation (`maskwright.objectives.mlm`), on rows as long as the
model's longest input; packed rows are taken apart, because other programs know no packing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.collate import SpecialIds
from maskwright.data.config import DataConfig
from maskwright.data.masking import IGNORED, Vocabulary
from maskwright.errors import ShardError
from maskwright.evaluation.pinned import PinnedText
from maskwright.interop.comparison import Compute, batch_by_length, pad_rows
from maskwright.model_folder.folder import LoadedModel
from maskwright.runs.find_data import check_made_for
from maskwright.shards.reader import TokenStore

NUM_SLOTS = 16_384  # about 2,400 masks
_LONGEST_ROW = 512
_TIMED_ROWS = 8


@dataclass(frozen=True)
class MaskedRow:
    """One segment: its ids, the places of its masks, and the hidden tokens."""

    ids: list[int]
    places: list[int]
    labels: list[int]


def open_held_out(loaded: LoadedModel, data: Path) -> TokenStore:
    """The held-out text of a prepared folder.

    Raises:
        ShardError: it was made with another tokenizer than the model's.
    """
    check_made_for(loaded.tokenizer, data)
    return TokenStore.open(data, "valid", "sizes")


def read_masked_rows(
    loaded: LoadedModel, data: Path, num_slots: int = NUM_SLOTS
) -> list[MaskedRow]:
    """The rows of a prepared folder's held-out text that hold a mask.

    Raises:
        ShardError: the data was made with another tokenizer, or holds too little held-out text.
    """
    tokenizer, valid = loaded.tokenizer, open_held_out(loaded, data)
    longest = min(loaded.model.config.max_position_embeddings, _LONGEST_ROW)
    batches = PinnedText(
        valid,
        DataConfig(max_seq_length=longest, special_tokens=loaded.add_special_tokens),
        SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, loaded.add_special_tokens),
        Vocabulary(
            tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids, valid.unigram_counts
        ),
        num_slots,
    ).batches()
    rows = [row for batch in batches for row in take_apart(batch)]
    if not rows:
        raise ShardError(
            f"{data} holds too little validation text: no token of it is hidden. Prepare it with a "
            "larger corpus.valid_fraction."
        )
    return rows


def take_apart(batch: Batch) -> Iterator[MaskedRow]:
    """The segments of a batch that hold a mask."""
    used = batch.masked_labels != IGNORED
    places, labels = batch.masked_positions[used], batch.masked_labels[used]
    order = places.argsort()
    places, labels = places[order], labels[order]
    bounds = batch.context.cu_seqlens.unique().tolist()
    for start, stop in pairwise(bounds):
        inside = (places >= start) & (places < stop)
        if inside.any():
            ids = batch.input_ids[start:stop].tolist()
            yield MaskedRow(ids, (places[inside] - start).tolist(), labels[inside].tolist())


def predict(rows: list[MaskedRow], compute: Compute, vocab_size: int, pad_id: int) -> Tensor:
    """The best word for every mask, in the order of `rows`: [M]."""
    found: list[Tensor] = [torch.empty(0)] * len(rows)
    for numbers, batch in batch_by_length([row.ids for row in rows], vocab_size, pad_id):
        logits = compute(batch.input_ids, batch.attention_mask)
        for place, number in enumerate(numbers):
            found[number] = logits[place, rows[number].places].argmax(-1)
    return torch.cat(found)


def all_labels(rows: list[MaskedRow]) -> Tensor:
    """The hidden tokens, in the same order."""
    return torch.tensor([label for row in rows for label in row.labels])


@dataclass(frozen=True)
class MaskJudge:
    """Judges a quantized graph by its best words for the masks of held-out text."""

    rows: list[MaskedRow]
    vocab_size: int
    pad_id: int
    metric = "accuracy"
    agreement = "the same best word for"

    @property
    def questions(self) -> str:
        return f"{sum(len(row.labels) for row in self.rows):,} masks of held-out text"

    def answer(self, graph: Compute) -> Tensor:
        return predict(self.rows, graph, self.vocab_size, self.pad_id)

    def agree(self, before: Tensor, after: Tensor) -> float:
        return (after == before).float().mean().item()

    def score(self, answers: Tensor) -> float:
        return self.agree(all_labels(self.rows), answers)

    def timed_batch(self) -> tuple[Tensor, Tensor]:
        longest = sorted((row.ids for row in self.rows), key=len)[-_TIMED_ROWS:]
        batch = pad_rows(longest, self.pad_id)
        return batch.input_ids, batch.attention_mask
