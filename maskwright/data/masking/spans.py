"""Spans of neighbouring tokens (Joshi et al. 2020, SpanBERT, arXiv 1907.10529).

A span begins at every maskable token, with a random time and a random length; a token's time is
the earliest among the spans that cover it. The maskable tokens of a row form a circle: a span
passes over special tokens, and one that reaches over the end of the row goes on at its beginning.
So no place is hidden more often than another, at the edges neither. The last span of a row is cut
where the quota is full.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.data.draws import Bits, Purpose, draw_bits, to_unit
from maskwright.data.masking.strategies import LAST, Flags

_GEOMETRIC_P = 0.2


class SpanMasking:
    """The tokens of a span have neighbouring times."""

    whole_groups = False
    needs_words = False
    extra_slots = 0

    def __init__(self, lengths: Literal["geometric", "uniform"], max_length: int) -> None:
        weights = np.ones(max_length)
        if lengths == "geometric":
            weights = (1 - _GEOMETRIC_P) ** np.arange(max_length)
        self._cumulative = np.cumsum(weights / weights.sum())
        self.max_length = max_length

    def draw_lengths(self, keys: Bits, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The length of the span that begins at each position: [R], [P] -> [R, P], from 1 on."""
        unit = to_unit(draw_bits(keys, Purpose.SPAN_LENGTH, positions))
        return np.minimum(np.searchsorted(self._cumulative, unit) + 1, self.max_length)

    def draw_times(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        positions = np.arange(maskable.shape[1])
        lengths = self.draw_lengths(keys, positions)
        # The lowest bits hold the place in the span: a span that is cut keeps its beginning.
        place_bits = np.uint64((self.max_length - 1).bit_length())
        span_times = draw_bits(keys, Purpose.MASK_CHOICE, positions) >> place_bits << place_bits
        place = np.cumsum(maskable, axis=1) - 1
        size = np.maximum(place[:, -1:] + 1, 1)
        times = np.full(maskable.shape, LAST)
        for offset in range(min(self.max_length, len(positions))):
            begin = (place - offset) % size
            covered = np.take_along_axis(span_times, begin, axis=1) | np.uint64(offset)
            reaches = np.take_along_axis(lengths, begin, axis=1) > offset
            np.minimum(times, covered, out=times, where=reaches)
        return times
