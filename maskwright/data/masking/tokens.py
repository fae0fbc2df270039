"""Single tokens, each as likely as any other (Devlin et al. 2019, arXiv 1810.04805)."""

import numpy as np

from maskwright.data.draws import Bits, Purpose, draw_bits
from maskwright.data.masking.strategies import Flags


class TokenMasking:
    """Every token has a time of its own."""

    whole_groups = False
    needs_words = False
    extra_slots = 0

    def draw_times(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        return draw_bits(keys, Purpose.MASK_CHOICE, np.arange(word_starts.shape[1]))
