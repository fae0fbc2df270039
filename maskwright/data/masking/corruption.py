"""From clean rows to masked rows: the one place where tokens are hidden.

Labels are copied from the clean input before anything is replaced. One draw for each position
decides among [MASK], a random token and the token itself, so the three shares are what the
configuration says (80 / 10 / 10 in BERT). Random tokens are ordinary tokens: never special ones.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.data.draws import Bits, Purpose, draw_bits, to_unit
from maskwright.data.masking.config import MaskingConfig
from maskwright.data.masking.spans import SpanMasking
from maskwright.data.masking.strategies import Flags, MaskingStrategy, choose_masked
from maskwright.data.masking.tokens import TokenMasking
from maskwright.data.masking.words import WordMasking

Ids = NDArray[np.int64]
IGNORED = -100  # the label of a slot without a prediction, as in torch's cross_entropy


@dataclass(frozen=True)
class Vocabulary:
    """What masking must know of a tokenizer.

    Attributes:
        size: V, every id is below it.
        mask_id: the id of [MASK].
        ordinary_ids: [O] ids that may be hidden or drawn as replacements, in ascending order.
        unigram_counts: [V] how often each token occurs in the training text.
    """

    size: int
    mask_id: int
    ordinary_ids: Ids
    unigram_counts: Ids


@dataclass(frozen=True)
class MaskedRows:
    """R rows of L tokens with K slots for predictions in each.

    Attributes:
        input_ids: [R, L] what the model sees.
        positions: [R, K] where in the row, 0 in unused slots.
        labels: [R, K] the clean token, `IGNORED` in unused slots.
    """

    input_ids: Ids
    positions: Ids
    labels: Ids


def build_strategy(config: MaskingConfig) -> MaskingStrategy:
    """The strategy that the configuration names."""
    if config.strategy == "spans":
        return SpanMasking(config.span_lengths, config.max_span_length)
    return WordMasking() if config.strategy == "words" else TokenMasking()


class Masker:
    """Hides tokens as configured, as a pure function of the rows and their keys."""

    def __init__(
        self, config: MaskingConfig, vocabulary: Vocabulary, protected_ids: tuple[int, ...] = ()
    ) -> None:
        self.config, self.vocabulary = config, vocabulary
        self.strategy = build_strategy(config)
        self._maskable = np.zeros(vocabulary.size, dtype=bool)
        self._maskable[vocabulary.ordinary_ids] = True
        self._maskable[list(protected_ids)] = False
        counts = vocabulary.unigram_counts[vocabulary.ordinary_ids].astype(np.float64)
        weights = counts if config.replacement == "unigram" else np.ones_like(counts)
        self._cumulative = np.cumsum(weights) / weights.sum()

    def num_slots(self, row_length: int) -> int:
        """K: slots for predictions in a row, enough at the highest rate of the run."""
        quota = int(np.ceil(self.config.highest_rate * row_length))
        return min(quota + self.strategy.extra_slots, row_length)

    def mask(self, ids: Ids, word_starts: Flags, keys: Bits, rate: float) -> MaskedRows:
        """Hides `rate` of the ordinary tokens of each row.

        Args:
            ids: [R, L] clean tokens, left as they are.
            word_starts: [R, L].
            keys: [R], each a hash of (seed, epoch, row).
            rate: at most the highest rate of the configuration.
        """
        maskable = self._maskable[ids]
        chosen = choose_masked(self.strategy, keys, maskable, word_starts, rate)
        lines, columns = np.nonzero(chosen)
        counts = np.bincount(lines, minlength=len(ids))
        slots = np.arange(len(lines)) - (np.cumsum(counts) - counts)[lines]
        hidden, corrupted = ids[lines, columns], ids.copy()
        corrupted[lines, columns] = self._corrupt(hidden, keys[lines], columns)
        shape = (len(ids), self.num_slots(ids.shape[1]))
        positions, labels = np.zeros(shape, np.int64), np.full(shape, IGNORED, np.int64)
        positions[lines, slots], labels[lines, slots] = columns, hidden
        return MaskedRows(corrupted, positions, labels)

    def predict_all(self, ids: Ids) -> MaskedRows:
        """Hides nothing; every ordinary token is to be predicted, from those before it."""
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        return MaskedRows(ids, positions, np.where(self._maskable[ids], ids, IGNORED))

    def _corrupt(self, hidden: Ids, keys: Bits, columns: Ids) -> Ids:
        """What stands in the place of hidden tokens [H], in rows of these keys [H]: [H]."""
        decision = to_unit(draw_bits(keys, Purpose.CORRUPTION, columns[:, None])[:, 0])
        is_masked = decision < self.config.mask_share
        corrupted = np.where(is_masked, self.vocabulary.mask_id, hidden)
        is_random = ~is_masked & (decision < self.config.mask_share + self.config.random_share)
        places = columns[is_random][:, None]
        drawn = to_unit(draw_bits(keys[is_random], Purpose.REPLACEMENT, places)[:, 0])
        rank = np.searchsorted(self._cumulative, drawn, side="right")
        last = len(self.vocabulary.ordinary_ids) - 1
        corrupted[is_random] = self.vocabulary.ordinary_ids[np.minimum(rank, last)]
        return corrupted
