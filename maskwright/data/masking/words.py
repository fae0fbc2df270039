"""Whole words: if one piece of a word is hidden, all are.

After the whole-word models of google-research/bert, without their two flaws: words are told by
the tokenizer's own word starts and not by a "##", and long words are hidden as often as short ones.
"""

import numpy as np

from maskwright.data.draws import Bits, Purpose, draw_bits
from maskwright.data.masking.strategies import Flags


class WordMasking:
    """Every word has one time: the draw at its first token."""

    whole_groups = True
    needs_words = True
    extra_slots = 6  # a word that reaches further than this beyond the quota stays visible

    def draw_times(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        positions = np.arange(word_starts.shape[1])
        times = draw_bits(keys, Purpose.MASK_CHOICE, positions)
        first_token = np.maximum.accumulate(np.where(word_starts, positions, 0), axis=1)
        return np.take_along_axis(times, first_token, axis=1)
