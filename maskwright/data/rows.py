"""Segments of documents, and rows of packed segments of one corpus or of several, from an index.

A segment is a span of tokens that attend to each other. A document of n tokens becomes
``ceil(n / max_tokens)`` segments, all full but the last. Only one cumulative count per document is
stored; a binary search finds segment i.

The shuffled segments of an epoch are split into windows of `WINDOW_SEGMENTS`. Each window is packed
into rows separately, and its rows are shuffled, since packing sorts them by length. The row numbers
of window w start at ``w * WINDOW_SEGMENTS``. A window never has more rows than segments, so a row
number identifies its window, and any row can be planned without the previous ones. Row numbers that
a window does not use are skipped.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.counter_rng import Purpose, derive_keys
from maskwright.data.packing import pack_best_fit
from maskwright.data.permutation import permute
from maskwright.errors import ShardError

Ints = NDArray[np.int64]

WINDOW_SEGMENTS = 4096


class TokenSource(Protocol):
    """The tokens of a corpus by position, as `maskwright.shards` reads them."""

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger]: ...

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]: ...


class SegmentTable:
    """The positions of the segments of a corpus.

    Args:
        document_lengths: [D] the tokens of each document; empty documents have no segment.
        max_tokens: the maximum tokens per segment, special tokens excluded.
    """

    def __init__(self, document_lengths: Ints, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        counts = -(-document_lengths // max_tokens)
        self._first_segment = np.concatenate([[0], np.cumsum(counts)])
        self._first_token = np.concatenate([[0], np.cumsum(document_lengths)])

    def __len__(self) -> int:
        return int(self._first_segment[-1])

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the corpus, special tokens excluded."""
        return int(self._first_token[-1])

    def locate(self, indices: Ints) -> tuple[Ints, Ints]:
        """Return start (in tokens of the corpus) and length of segments: [n] -> [n], [n]."""
        documents = np.searchsorted(self._first_segment, indices, side="right") - 1
        offsets = (indices - self._first_segment[documents]) * self.max_tokens
        starts = self._first_token[documents] + offsets
        lengths = np.minimum(self.max_tokens, self._first_token[documents + 1] - starts)
        return starts, lengths


@dataclass(frozen=True)
class DataPosition:
    """The next row of a training run: the complete data state for resumption.

    `row_length` is part of it, because segments and their order depend on it. `row` is its number.
    """

    row_length: int
    epoch: int = 0
    row: int = 0


class Row(NamedTuple):
    """A row's epoch and number, and its segments: (start, length) in corpus tokens."""

    epoch: int
    number: int
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """R rows with S segments in total.

    Attributes:
        epochs: [R].
        numbers: [R] within the epoch.
        counts: [R] the number of segments.
        spans: [S, 2] start and length of each segment in corpus tokens, row by row.
    """

    epochs: Ints
    numbers: Ints
    counts: Ints
    spans: Ints

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Rows":
        """Return single rows (at least one) as one object."""
        epochs, numbers, segments = zip(*rows, strict=True)
        spans = np.asarray([*chain.from_iterable(segments)], np.int64).reshape(-1, 2)
        counts = np.asarray([len(row) for row in segments])
        return cls(np.asarray(epochs), np.asarray(numbers), counts, spans)

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Row]:
        spans = iter([(start, length) for start, length in self.spans.tolist()])
        columns = (self.epochs.tolist(), self.numbers.tolist(), self.counts.tolist())
        for epoch, number, count in zip(*columns, strict=True):
            yield Row(epoch, number, tuple(islice(spans, count)))

    def take(self, indices: Ints) -> "Rows":
        """Return the rows at `indices`, in this order."""
        firsts, counts = np.cumsum(self.counts) - self.counts, self.counts[indices]
        spans = self.spans[concat_ranges(firsts[indices], counts)]
        return Rows(self.epochs[indices], self.numbers[indices], counts, spans)

    def slice(self, first: int, last: int) -> "Rows":
        """Return the rows ``first:last``."""
        begin = int(self.counts[:first].sum())
        spans = self.spans[begin : begin + int(self.counts[first:last].sum())]
        kept = slice(first, last)
        return Rows(self.epochs[kept], self.numbers[kept], self.counts[kept], spans)

    @classmethod
    def concat(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return all rows of `parts` (at least one), concatenated."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def concat_ranges(begins: Ints, lengths: Ints) -> Ints:
    """Return ``range(begin, begin + length)`` of each pair, concatenated."""
    ends = np.cumsum(lengths)
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(lengths.sum())


def segments_per_row(row_length: int) -> int:
    """Return the maximum number of segments in a row, which fixes the shape of arrays."""
    return max(1, row_length // 4)


class WindowPlanner(ABC):
    """A planner of the rows of every epoch, window by window.

    Args:
        row_length: positions in a row, special tokens included.
        special_per_segment: the number of special tokens per segment ([CLS] and [SEP]).
        seed: the seed of the order.
        packed: True if several short segments may share a row.
    """

    def __init__(self, row_length: int, special_per_segment: int, seed: int, packed: bool) -> None:
        self.row_length, self.special_per_segment, self.seed = row_length, special_per_segment, seed
        self.max_segments = segments_per_row(row_length) if packed else 1
        # The last planned window: one tuple, so that threads can share a planner without a lock.
        self._planned: tuple[int, int, Rows] | None = None

    @property
    @abstractmethod
    def end_number(self) -> int:
        """The number of row numbers of an epoch, including skipped ones."""

    @abstractmethod
    def _plan_window(self, epoch: int, window: int) -> Rows:
        """Return the rows of a window: at least one, of at most `WINDOW_SEGMENTS` segments."""

    def plan_rows(self, position: DataPosition, count: int) -> tuple[Rows, DataPosition]:
        """Return `count` rows starting at `position`, and the position after them.

        The rows may extend into the next epoch.
        """
        parts: list[Rows] = []
        missing, epoch, number = count, position.epoch, position.row
        while missing or not parts:
            if number >= self.end_number:
                epoch, number = epoch + 1, 0
            window, offset = divmod(number, WINDOW_SEGMENTS)
            available = self._window(epoch, window)
            part = available.slice(offset, offset + missing)
            parts.append(part)
            missing -= len(part)
            used_up = offset + len(part) >= len(available)
            number = (window + 1) * WINDOW_SEGMENTS if used_up else number + len(part)
        return Rows.concat(parts), DataPosition(self.row_length, epoch, number)

    def read_ahead(self, position: DataPosition) -> Iterator[Ints]:
        """Yield the starts of the segments of the rows after `position`, [n] at a time.

        The iterator stops at the end of the next epoch, so every segment occurs at least once.
        """
        last = position.epoch + 1
        while position.epoch <= last:
            rows, position = self.plan_rows(position, WINDOW_SEGMENTS)
            yield rows.spans[:, 0]

    def count_tokens(self, rows: Rows) -> int:
        """Return the number of tokens in `rows`, [CLS] and [SEP] included."""
        return int(rows.spans[:, 1].sum()) + len(rows.spans) * self.special_per_segment

    def _window(self, epoch: int, window: int) -> Rows:
        planned = self._planned
        if planned is None or planned[:2] != (epoch, window):
            self._planned = planned = (epoch, window, self._plan_window(epoch, window))
        return planned[2]

    def _pack(self, starts: Ints, lengths: Ints, epoch: int) -> Rows:
        """Pack segments into rows, numbered from 0 and sorted by length."""
        needed = (lengths + self.special_per_segment).tolist()
        packed = pack_best_fit(needed, self.row_length, self.max_segments)
        counts = np.asarray([len(row) for row in packed])
        spans = np.stack([starts, lengths], axis=1)[[*chain.from_iterable(packed)]]
        return Rows(np.full(len(packed), epoch), np.arange(len(packed)), counts, spans)


class RowPlanner(WindowPlanner):
    """A planner of the rows of one corpus: every segment occurs once per epoch.

    Args:
        segments: the segments of the corpus. The other arguments are those of `WindowPlanner`.

    Raises:
        ShardError: the corpus holds no token.
    """

    def __init__(
        self,
        segments: SegmentTable,
        row_length: int,
        special_per_segment: int,
        seed: int,
        packed: bool,
    ) -> None:
        super().__init__(row_length, special_per_segment, seed, packed)
        if not len(segments):
            raise ShardError(
                "the prepared data holds 0 tokens, too few for a row. Add text, or raise "
                "corpus.valid_fraction for the validation split"
            )
        self.segments = segments

    @property
    def end_number(self) -> int:
        return len(self.segments)

    def _plan_window(self, epoch: int, window: int) -> Rows:
        first = window * WINDOW_SEGMENTS
        last = min(first + WINDOW_SEGMENTS, len(self.segments))
        chosen = permute(np.arange(first, last), len(self.segments), self.seed, epoch)
        rows = self._pack(*self.segments.locate(chosen), epoch)
        numbers = rows.numbers
        keys = derive_keys(self.seed, epoch, window, Purpose.ROW_ORDER, numbers)
        shuffled = rows.take(np.argsort(keys, kind="stable"))
        return replace(shuffled, numbers=first + numbers)
