"""Which segments fill which row: planned a window at a time, from nothing but an index.

The shuffled segments of an epoch are taken in windows of `WINDOW_SEGMENTS`; each window is packed
into rows by itself and its rows are shuffled (packing leaves them sorted by length). Row numbers
of window w start at ``w * WINDOW_SEGMENTS``: a window never has more rows than segments, so a row
number names its window, and any row can be found without planning the rows before it. Numbers
that a window does not use are skipped.
"""

from dataclasses import dataclass

import numpy as np

from maskwright.data.draws import Purpose, derive_keys
from maskwright.data.order import permute
from maskwright.data.packing import pack_best_fit
from maskwright.data.segments import SegmentTable
from maskwright.errors import ShardError

WINDOW_SEGMENTS = 4096


@dataclass(frozen=True)
class DataPosition:
    """The next row that training will see. All that a resumed run needs to know of the data.

    Rows of another length are another order of other segments; hence `row_length`.
    """

    row_length: int
    epoch: int = 0
    row: int = 0


@dataclass(frozen=True)
class Row:
    """One row's place in the run and the segments in it: (start, length) in corpus tokens."""

    epoch: int
    number: int
    segments: tuple[tuple[int, int], ...]


def segments_per_row(row_length: int) -> int:
    """The most segments in a row; a bound, so that arrays of segment ends have a fixed size."""
    return max(1, row_length // 4)


class RowPlanner:
    """Plans the rows of every epoch.

    Args:
        segments: the corpus.
        row_length: slots in a row, special tokens included.
        extra_slots: slots that each segment takes beside its own tokens ([CLS] and [SEP]).
        seed: names the order.
        packed: several short segments may share a row; otherwise one segment a row.

    Raises:
        ShardError: there is not a single token.
    """

    def __init__(
        self, segments: SegmentTable, row_length: int, extra_slots: int, seed: int, packed: bool
    ) -> None:
        if not len(segments):
            raise ShardError(
                "the prepared data holds 0 tokens, too few for a row: give more text, or for the "
                "validation split raise corpus.valid_fraction"
            )
        self.segments, self.row_length, self.extra_slots = segments, row_length, extra_slots
        self.seed = seed
        self.max_segments = segments_per_row(row_length) if packed else 1
        # The last window, with its epoch and number. One tuple, as threads may share a planner.
        self._planned: tuple[int, int, list[Row]] | None = None

    def plan_rows(self, position: DataPosition, count: int) -> tuple[list[Row], DataPosition]:
        """The next `count` rows from `position` on, and the position after them.

        Every segment appears once in an epoch; the rows of the next epoch follow without a gap.
        """
        rows: list[Row] = []
        epoch, number = position.epoch, position.row
        while len(rows) < count:
            if number >= len(self.segments):
                epoch, number = epoch + 1, 0
            window, offset = divmod(number, WINDOW_SEGMENTS)
            available = self._window(epoch, window)
            taken = available[offset : offset + count - len(rows)]
            rows += taken
            used_up = offset + len(taken) >= len(available)
            number = (window + 1) * WINDOW_SEGMENTS if used_up else number + len(taken)
        return rows, DataPosition(self.row_length, epoch, number)

    def count_tokens(self, row: Row) -> int:
        """Slots of `row` that hold a token, [CLS] and [SEP] included."""
        return sum([length for _, length in row.segments], len(row.segments) * self.extra_slots)

    def _window(self, epoch: int, window: int) -> list[Row]:
        planned = self._planned
        if planned is None or planned[:2] != (epoch, window):
            self._planned = planned = (epoch, window, self._plan_window(epoch, window))
        return planned[2]

    def _plan_window(self, epoch: int, window: int) -> list[Row]:
        first = window * WINDOW_SEGMENTS
        last = min(first + WINDOW_SEGMENTS, len(self.segments))
        chosen = permute(np.arange(first, last), len(self.segments), self.seed, epoch)
        starts, lengths = self.segments.locate(chosen)
        needed = (lengths + self.extra_slots).tolist()
        packed = pack_best_fit(needed, self.row_length, self.max_segments)
        shuffled = np.argsort(
            derive_keys(self.seed, epoch, window, Purpose.ROW_ORDER, np.arange(len(packed))),
            kind="stable",
        )
        spans = list(zip(starts.tolist(), lengths.tolist(), strict=True))
        return [
            Row(epoch, first + number, tuple([spans[i] for i in packed[source]]))
            for number, source in enumerate(shuffled.tolist())
        ]
