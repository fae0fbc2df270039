"""Rows exactly as training sees them, one at a time: in colour for people, as JSON for programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.text import Text

from maskwright.data.batch import Batch
from maskwright.data.loader import RowSource, StepRequest
from maskwright.data.masking.corruption import IGNORED
from maskwright.data.rows import DataPosition
from maskwright.tokenizer.tokenizer import Tokenizer

_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class RowView:
    """One row of L slots.

    Attributes:
        epoch: its epoch.
        number: its number; numbers have gaps at the ends of windows (see `maskwright.data.rows`).
        ids: L token ids, masked.
        labels: L ids of what was there where a token is hidden, elsewhere -100.
        segments: L numbers of the segments; what is left empty is one of its own.
    """

    epoch: int
    number: int
    ids: list[int]
    labels: list[int]
    segments: list[int]

    def to_json(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "row": self.number,
            "tokens": tokenizer.tokens(self.ids),
            "ids": self.ids,
            "labels": self.labels,
            "segments": self.segments,
        }

    def to_text(self, tokenizer: Tokenizer) -> Text:
        """A heading and the tokens, with what the hidden ones were."""
        text = Text(f"\nepoch {self.epoch}, row {self.number}\n", style="bold")
        return text.append_text(self._paint(tokenizer))

    def _paint(self, tokenizer: Tokenizer) -> Text:
        line = Text(style="not bold")
        previous = self.segments[0]
        for token_id, label, segment in zip(self.ids, self.labels, self.segments, strict=True):
            if token_id == tokenizer.pad_id:
                continue
            if segment != previous:
                line.append("\n│ ", style="dim")
                previous = segment
            token = tokenizer.token(token_id)
            if label == IGNORED:
                line.append(token + " ")
                continue
            kinds = {tokenizer.mask_id: "black on yellow", label: "black on green"}
            line.append(token, style=kinds.get(token_id, "black on red"))
            line.append(f"={tokenizer.token(label)} ", style="dim")
        padding = self.ids.count(tokenizer.pad_id)
        if padding:
            line.append(f"[{padding} empty]", style="dim")
        return line


def view_rows(
    source: RowSource, position: DataPosition, count: int, mask_rate: float
) -> Iterator[RowView]:
    """The next `count` rows from `position` on; the rows of the next epoch follow without a gap."""
    length = position.row_length
    while count > 0:
        size = min(count, _ROWS_AT_ONCE)
        rows, _ = source.planner(length).plan_rows(position, size)
        loaded = source.load(StepRequest(length, size, size, mask_rate), position)
        [batch] = loaded.micro_batches
        columns = [batch.input_ids.numpy(), _place_labels(batch), batch.segment_ids.numpy()]
        slots = zip(*(column.reshape(size, length).tolist() for column in columns), strict=True)
        for row, (ids, labels, segments) in zip(rows, slots, strict=True):
            yield RowView(row.epoch, row.number, ids, labels, segments)
        position = loaded.next_position
        count -= size


def _place_labels(batch: Batch) -> np.ndarray:
    """[T] the labels in the places that they are for."""
    labels = np.full(len(batch.input_ids), IGNORED)
    used = batch.masked_labels.numpy() != IGNORED
    labels[batch.masked_positions.numpy()[used]] = batch.masked_labels.numpy()[used]
    return labels
