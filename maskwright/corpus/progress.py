"""The progress of a pass over text, by the bytes of its files, and the time left."""

import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from maskwright.corpus.documents import Source

Item = TypeVar("Item")


class ReadProgress:
    """The share of the files that one pass has read and worked on.

    Sizes are those on disk, so compressed files count by their compressed bytes. Readers call
    `begin` and `advance`; a caller that hands items to workers calls `hand_out` and `finish`.

    Args:
        total: in bytes, or in any other unit that `advance` then takes; None: `expect` sets it.
    """

    def __init__(self, total: int | None = None) -> None:
        self._total = total
        self._before = self._position = 0  # bytes of sources before the current one, and of it
        self._size = total or 0  # of the current source
        self._num_handed_out = self._num_finished = 0
        self._start = time.monotonic()

    def expect(self, sources: Iterable[Source]) -> None:
        """Set the total to the sizes of all sources; unknown if the size of one is."""
        sizes = [_measure(source) for source in sources]
        self._total = None if None in sizes else sum(size or 0 for size in sizes)

    def begin(self, source: Source) -> None:
        """Note that `source` is read now, and those before it are done."""
        self._before += self._size
        self._size, self._position = _measure(source) or 0, 0

    def advance(self, position: int) -> None:
        """Note how many bytes of the current source were read."""
        self._position = min(position, self._size)

    def hand_out(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield `items`, made of what was read, and count them as work to be done."""
        for item in items:
            self._num_handed_out += 1
            yield item

    def finish(self) -> None:
        """Note that one of the items that were handed out is done."""
        self._num_finished += 1

    @property
    def share(self) -> float:
        """The share of the pass that is done, from 0 to 1; 0 where the total is not known."""
        if not self._total:
            return 0.0
        share = min(1.0, (self._before + self._position) / self._total)
        # What was read ahead is not done yet.
        return share * self._num_finished / self._num_handed_out if self._num_handed_out else share

    def __str__(self) -> str:
        """Return `` (PERCENT, TIME left)`` to end a line with; empty while nothing is known."""
        share = self.share
        if not share:
            return ""
        seconds = (time.monotonic() - self._start) * (1 - share) / share
        return f" ({share:.0%}, {timedelta(seconds=round(seconds))} left)"


def _measure(source: Source) -> int | None:
    try:
        return source.path.stat().st_size if source.path else None
    except OSError:  # the reader of the file says what is wrong
        return None
