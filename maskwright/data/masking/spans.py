"""Spans of neighbouring tokens (Joshi et al. 2020, SpanBERT, arXiv 1907.10529).

A span begins at every position, with a random time and a random length; a token's time is the
earliest among the spans that cover it. Spans may begin before the row, so that the first tokens
are hidden as often as the others. The last span of a row is cut where the quota is full.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.data.draws import Bits, Purpose, draw_bits, to_unit
from maskwright.data.masking.strategies import Flags

_GEOMETRIC_P = 0.2


class SpanMasking:
    """Every span has one time."""

    whole_groups = False
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

    def draw_times(self, keys: Bits, word_starts: Flags) -> Bits:
        num_before = self.max_length - 1
        starts = np.arange(-num_before, word_starts.shape[1])
        span_times = draw_bits(keys, Purpose.MASK_CHOICE, starts)
        lengths = self.draw_lengths(keys, starts)
        times = span_times.copy()
        for offset in range(1, self.max_length):
            reaches = lengths[:, :-offset] > offset
            covered = times[:, offset:]
            np.minimum(covered, span_times[:, :-offset], out=covered, where=reaches)
        return times[:, num_before:]
