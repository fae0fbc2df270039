"""Rows exactly as in training, one at a time: in color for people, as JSON for programs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from rich.text import Text

from maskwright.data.batch import Batch
from maskwright.data.loader import RowSource, StepRequest
from maskwright.data.masking import IGNORED
from maskwright.data.rows import DataPosition
from maskwright.tokenizer.token_text import TokenText, show_tokens
from maskwright.tokenizer.tokenizer import Tokenizer

_ROWS_AT_ONCE = 64
Kind = Literal["", "masked", "kept", "random"]
_STYLES = {"masked": "black on yellow", "kept": "black on green", "random": "black on red"}


class ShownToken(NamedTuple):
    """A token as the model sees it, how it was masked, and the clean token if it was."""

    shown: str
    kind: Kind
    clean: str
    segment: int


@dataclass(frozen=True)
class RowView:
    """One row of L positions.

    Attributes:
        epoch: its epoch.
        number: its number; numbers have gaps at the ends of windows (see `maskwright.data.rows`).
        ids: L token ids, masked.
        labels: L clean ids of masked tokens, -100 elsewhere.
        segments: L segment indices; the unused tail is a separate segment.
        types: L token types if segments are pairs of texts, else empty.
        pairs: labels of pairs by segment index: 0 = next, 1 = not.
        source: the name of its source, if there are several.
    """

    epoch: int
    number: int
    ids: list[int]
    labels: list[int]
    segments: list[int]
    types: list[int]
    pairs: dict[int, int]
    source: str | None = None

    def to_json(self, tokenizer: Tokenizer) -> dict[str, object]:
        row = {
            "epoch": self.epoch,
            "row": self.number,
            "tokens": show_tokens(tokenizer, self.ids),
            "ids": self.ids,
            "labels": self.labels,
            "segments": self.segments,
        }
        if self.source is not None:
            row["source"] = self.source
        return {**row, "token_types": self.types, "pairs": self.pairs} if self.types else row

    @property
    def name(self) -> str:
        """The epoch, the number and the source."""
        of_source = "" if self.source is None else f", {self.source}"
        return f"epoch {self.epoch}, row {self.number}{of_source}"

    def list_tokens(self, tokenizer: Tokenizer) -> Iterator[ShownToken]:
        """Yield the tokens of the row without padding."""
        show = TokenText(tokenizer).show
        for token_id, label, segment in zip(self.ids, self.labels, self.segments, strict=True):
            if token_id == tokenizer.pad_id:
                continue
            if label == IGNORED:
                yield ShownToken(show(token_id), "", "", segment)
                continue
            kinds: dict[int | None, Kind] = {tokenizer.mask_id: "masked", label: "kept"}
            yield ShownToken(show(token_id), kinds.get(token_id, "random"), show(label), segment)

    def to_text(self, tokenizer: Tokenizer) -> Text:
        """Return a heading and the tokens, with the clean token after each masked one."""
        text = Text(f"\n{self.name}\n", style="bold")
        line, previous = Text(style="not bold"), self.segments[0]
        line.append(self.describe_pair(previous), style="cyan")
        for token in self.list_tokens(tokenizer):
            if token.segment != previous:
                line.append("\n│ ", style="dim")
                line.append(self.describe_pair(token.segment), style="cyan")
                previous = token.segment
            if not token.kind:
                line.append(token.shown + " ")
                continue
            line.append(token.shown, style=_STYLES[token.kind])
            line.append(f"⟨{token.clean}⟩ ", style="dim")
        padding = self.ids.count(tokenizer.pad_id)
        if padding:
            line.append(f"[{padding} empty]", style="dim")
        return text.append_text(line)

    def describe_pair(self, segment: int) -> str:
        """Return whether a pair of texts belongs together; empty if there are no pairs."""
        label = self.pairs.get(segment)
        return "" if label is None else "(not next) " if label else "(next) "


def view_rows(
    source: RowSource,
    position: DataPosition,
    count: int,
    mask_rate: float,
    name_source: Callable[[int], str] | None = None,
) -> Iterator[RowView]:
    """Yield `count` rows of a step that starts at `position`, across the ends of epochs.

    Args:
        name_source: a function that maps a token position to its source; None: a single source.
    """
    length, first = position.row_length, position
    while count > 0:
        size = min(count, _ROWS_AT_ONCE)
        rows, _ = source.planner(length).plan_rows(position, size)
        loaded = source.load(StepRequest(length, size, size, mask_rate), position, first)
        [batch] = loaded.micro_batches
        ids, segments = batch.input_ids.numpy(), batch.context.segment_ids.numpy()
        labels = np.full(len(ids), IGNORED)
        masked, clean = batch.masked_tokens()
        labels[masked.numpy()] = clean.numpy()
        columns = (ids, labels, segments)
        tokens = zip(*(column.reshape(size, length).tolist() for column in columns), strict=True)
        types, pairs = _list_pairs(batch, size)
        for row, of_tokens, *of_pairs in zip(rows, tokens, types, pairs, strict=True):
            name = name_source(row.segments[0][0]) if name_source else None
            yield RowView(row.epoch, row.number, *of_tokens, *of_pairs, source=name)
        position = loaded.next_position
        count -= size


def _list_pairs(batch: Batch, num_rows: int) -> tuple[list[list[int]], list[dict[int, int]]]:
    """Return the token types of each row, and the labels of its pairs by segment."""
    types, positions, labels = batch.token_type_ids, batch.pair_positions, batch.pair_labels
    pairs: list[dict[int, int]] = [{} for _ in range(num_rows)]
    if types is None or positions is None or labels is None:
        return [[] for _ in range(num_rows)], pairs
    used = labels != IGNORED
    for position, label in zip(positions[used].tolist(), labels[used].tolist(), strict=True):
        row = position // batch.context.row_length
        pairs[row][int(batch.context.segment_ids[position])] = label
    return types.reshape(num_rows, -1).tolist(), pairs
