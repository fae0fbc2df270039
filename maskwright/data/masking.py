"""Masking: the choice of masked tokens, their replacements, and the labels.

A strategy assigns every token a *priority*, a random number: the tokens with the smallest
priorities are masked until the row's quota is reached. Tokens of equal priority form a group (a
word), which is masked completely unless it is long. The number of masked tokens of a row thus does
not depend on other rows. Each strategy is one class, listed in `maskwright.data.config.STRATEGIES`.

Labels are copied from the clean input before any replacement. One draw for each position decides
between [MASK], a random token and the token itself, so the three shares are exactly those of the
configuration (80 / 10 / 10 in BERT). Random tokens are never special tokens, and in training they
are tokens that occur in the text.

R rows of L tokens, K entries for predictions in each.
"""

import importlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.config import STRATEGIES, MaskingConfig
from maskwright.data.counter_rng import Bits, Purpose, derive_keys, draw_bits, to_unit

Flags = NDArray[np.bool_]
Ids = NDArray[np.int64]

IGNORED = -100  # the label of an entry without a prediction, as in torch's cross_entropy
LAST = np.uint64(2**64 - 1)  # the priority of tokens that are never masked
_GEOMETRIC_P = 0.2  # the parameter of SpanBERT's span lengths


class MaskingStrategy(Protocol):
    """The interface of a masking strategy, constructed from a `MaskingConfig`."""

    #: True if tokens of equal priority form a group; if False, counts are exact.
    whole_groups: bool = False

    #: True if the strategy uses word starts.
    needs_words: bool = False

    #: The number of tokens by which the last group of a row may exceed the quota. Groups of up to
    #: one token more are masked completely or not at all.
    max_excess: int = 0

    def __init__(self, config: MaskingConfig) -> None:
        pass

    def draw_priorities(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        """Return the priorities of all tokens; those of tokens that are not maskable are ignored.

        Args:
            keys: [R], each a hash of (seed, epoch, row).
            maskable: [R, L], False on special tokens, padding and protected tokens.
            word_starts: [R, L], True where a word begins.

        Returns:
            [R, L].
        """
        ...


class TokenMasking(MaskingStrategy):
    """Single tokens, all with the same probability.

    Devlin et al., "BERT", 2019, arXiv 1810.04805.
    """

    def draw_priorities(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        return draw_bits(keys, Purpose.MASK_CHOICE, np.arange(word_starts.shape[1]))


class WordMasking(MaskingStrategy):
    """Whole words: if one token of a word is masked, all are.

    A word of more than seven tokens is cut where it would exceed the quota by more than six: then
    its first or its last tokens are masked. Every token is masked with the same probability.

    This differs from the whole-word models of google-research/bert in two points: word starts come
    from the tokenizer and not from a "##" prefix, and long words are masked as often as short ones.
    The priority of a word is the draw at its first token.
    """

    whole_groups = True
    needs_words = True
    max_excess = 6

    def draw_priorities(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        positions = np.arange(word_starts.shape[1])
        priorities = draw_bits(keys, Purpose.MASK_CHOICE, positions)
        first_token = np.maximum.accumulate(np.where(word_starts, positions, 0), axis=1)
        return np.take_along_axis(priorities, first_token, axis=1)


class SpanMasking(MaskingStrategy):
    """Spans of consecutive tokens.

    Joshi et al., "SpanBERT", 2020, arXiv 1907.10529. A span begins at every maskable token, with a
    random priority and a random length; the priority of a token is the smallest among the spans
    that cover it. The maskable tokens of a row form a circle: a span skips special tokens and wraps
    around from the end of the row to its beginning. All positions, including those at the edges,
    are therefore masked with the same probability. The last span of a row is cut at the quota.
    """

    def __init__(self, config: MaskingConfig) -> None:
        self.max_length = config.max_span_length
        weights = np.ones(self.max_length)
        if config.span_lengths == "geometric":
            weights = (1 - _GEOMETRIC_P) ** np.arange(self.max_length)
        self._cumulative = np.cumsum(weights / weights.sum())

    def draw_lengths(self, keys: Bits, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the length of the span that begins at each position, at least 1: [R, P]."""
        unit = to_unit(draw_bits(keys, Purpose.SPAN_LENGTH, positions))
        return np.minimum(np.searchsorted(self._cumulative, unit) + 1, self.max_length)

    def draw_priorities(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        positions = np.arange(maskable.shape[1])
        lengths = self.draw_lengths(keys, positions)
        # The lowest bits hold the distance from the span's start, so a cut removes its end.
        low_bits = np.uint64((self.max_length - 1).bit_length())
        span_priorities = draw_bits(keys, Purpose.MASK_CHOICE, positions) >> low_bits << low_bits
        number = np.cumsum(maskable, axis=1) - 1
        size = np.maximum(number[:, -1:] + 1, 1)
        priorities = np.full(maskable.shape, LAST)
        for distance in range(min(self.max_length, len(positions))):
            begin = (number - distance) % size
            covered = np.take_along_axis(span_priorities, begin, axis=1) | np.uint64(distance)
            reaches = np.take_along_axis(lengths, begin, axis=1) > distance
            np.minimum(priorities, covered, out=priorities, where=reaches)
        return priorities


def build_strategy(config: MaskingConfig) -> MaskingStrategy:
    """Return the strategy of a configuration."""
    module, _, name = STRATEGIES[config.strategy].partition(":")
    return getattr(importlib.import_module(module), name)(config)


def draw_quotas(keys: Bits, num_maskable: NDArray[np.int64], rate: float) -> NDArray[np.int64]:
    """Return the number of tokens to mask per row: ``rate * num_maskable``, rounded stochastically.

    Stochastic rounding is unbiased, so short rows have the correct rate on average.

    Args:
        keys: [R].
        num_maskable: [R].

    Returns:
        [R].
    """
    rounding = to_unit(derive_keys(keys.view(np.int64), Purpose.MASK_COUNT))
    return np.floor(num_maskable * rate + rounding).astype(np.int64)


def choose_masked(
    strategy: MaskingStrategy, keys: Bits, maskable: Flags, word_starts: Flags, rate: float
) -> Flags:
    """Choose the tokens of each row to mask.

    Args:
        keys, maskable, word_starts: see `MaskingStrategy.draw_priorities`.

    Returns:
        [R, L], True on at most ``quota + strategy.max_excess`` tokens of a row.
    """
    num_maskable = maskable.sum(axis=1)
    quotas = draw_quotas(keys, num_maskable, rate)
    priorities = np.where(maskable, strategy.draw_priorities(keys, maskable, word_starts), LAST)
    if not strategy.whole_groups:
        return _choose_first(priorities, quotas) & maskable
    offsets = to_unit(derive_keys(keys.view(np.int64), Purpose.WORD_OFFSET)) * num_maskable
    offsets = offsets.astype(np.int64)
    chosen = _choose_groups(priorities, quotas, num_maskable, offsets, strategy.max_excess)
    return chosen & maskable


def _choose_first(priorities: Bits, quotas: NDArray[np.int64]) -> Flags:
    """Return True on exactly the `quotas` tokens of each row with the smallest priorities."""
    ordered = np.sort(priorities, axis=1)
    at_quota = ordered[np.arange(len(ordered)), np.maximum(quotas - 1, 0)][:, None]
    before, equal = priorities < at_quota, priorities == at_quota
    missing = (quotas - before.sum(axis=1))[:, None]
    return (before | (equal & (np.cumsum(equal, axis=1) <= missing))) & (quotas > 0)[:, None]


def _choose_groups(
    priorities: Bits,
    quotas: NDArray[np.int64],
    num_maskable: NDArray[np.int64],
    offsets: NDArray[np.int64],
    extra: int,
) -> Flags:
    """Return True on groups of equal priority, about `quotas` tokens of each row: [R, L].

    The groups are arranged on a circle of `num_maskable` positions in the order of their
    priorities, the circle is rotated by a random offset, and a group is masked if its first token
    is among the first `quotas` positions. In a group of more than ``extra + 1`` tokens, each of the
    later ones is masked if the token `extra` before it is. Every token is thus masked with the same
    probability, whatever the length of its group; the mean count is the quota, and no count exceeds
    it by more than `extra`. Without the rotation, long words would be masked less often, because
    they exceed the quota more often.
    """
    positions = np.arange(priorities.shape[1])
    order = np.argsort(priorities, axis=1, kind="stable")
    ordered = np.take_along_axis(priorities, order, axis=1)
    is_first = np.ones(priorities.shape, dtype=bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(is_first, positions, 0), axis=1)
    deciding = np.maximum(first, positions - extra)
    slot = (deciding + offsets[:, None]) % np.maximum(num_maskable, 1)[:, None]
    chosen = np.empty(priorities.shape, dtype=bool)
    np.put_along_axis(chosen, order, slot < quotas[:, None], axis=1)
    return chosen


@dataclass(frozen=True)
class Vocabulary:
    """The properties of a tokenizer that masking needs.

    Attributes:
        size: V, the number of ids.
        mask_id: the id of [MASK].
        ordinary_ids: [O] ids that may be masked or drawn as replacements, in ascending order.
        unigram_counts: [V] the count of each token in the training text.
    """

    size: int
    mask_id: int
    ordinary_ids: Ids
    unigram_counts: Ids


@dataclass(frozen=True)
class MaskedRows:
    """R rows of L tokens with K entries for predictions in each.

    Attributes:
        input_ids: [R, L] the input of the model.
        positions: [R, K] positions in the row, 0 in unused entries.
        labels: [R, K] the clean token, `IGNORED` in unused entries.
    """

    input_ids: Ids
    positions: Ids
    labels: Ids


class Masker:
    """A pure function that masks rows by their keys, as configured.

    Args:
        protected_ids: ids that are never masked.
        only_occurring: draw only replacements that occur in the training text, which not all bytes
            of a byte-level tokenizer do. Pinned masks do not: they must not depend on that text.
    """

    def __init__(
        self,
        config: MaskingConfig,
        vocabulary: Vocabulary,
        protected_ids: tuple[int, ...] = (),
        *,
        only_occurring: bool = False,
    ) -> None:
        self.config, self.vocabulary = config, vocabulary
        self.strategy = build_strategy(config)
        self._maskable = np.zeros(vocabulary.size, dtype=bool)
        self._maskable[vocabulary.ordinary_ids] = True
        self._maskable[list(protected_ids)] = False
        counts = vocabulary.unigram_counts[vocabulary.ordinary_ids].astype(np.float64)
        weights = counts if config.replacement == "unigram" else np.ones_like(counts)
        self._cumulative = np.cumsum(weights) / weights.sum()
        occurring = vocabulary.ordinary_ids[counts > 0]
        self._occurring = occurring if only_occurring and len(occurring) else None

    def num_entries(self, row_length: int) -> int:
        """Return K, the entries for predictions in a row, enough for the run's highest rate."""
        quota = int(np.ceil(self.config.highest_rate * row_length))
        return min(quota + self.strategy.max_excess, row_length)

    def mask(self, ids: Ids, word_starts: Flags, keys: Bits, rate: float) -> MaskedRows:
        """Mask a share `rate` of the ordinary tokens of each row.

        Args:
            ids: [R, L] clean tokens, which are not modified.
            word_starts: [R, L].
            keys: [R], each a hash of (seed, epoch, row).
            rate: at most the highest rate of the configuration.
        """
        maskable = self._maskable[ids]
        chosen = choose_masked(self.strategy, keys, maskable, word_starts, rate)
        lines, columns = np.nonzero(chosen)
        counts = np.bincount(lines, minlength=len(ids))
        entries = np.arange(len(lines)) - (np.cumsum(counts) - counts)[lines]
        clean, corrupted = ids[lines, columns], ids.copy()
        corrupted[lines, columns] = self._corrupt(clean, keys[lines], columns)
        shape = (len(ids), self.num_entries(ids.shape[1]))
        positions, labels = np.zeros(shape, np.int64), np.full(shape, IGNORED, np.int64)
        positions[lines, entries], labels[lines, entries] = columns, clean
        return MaskedRows(corrupted, positions, labels)

    def predict_all(self, ids: Ids) -> MaskedRows:
        """Return rows without masks, with every ordinary token as a label (causal steps)."""
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        return MaskedRows(ids, positions, np.where(self._maskable[ids], ids, IGNORED))

    def _corrupt(self, clean: Ids, keys: Bits, columns: Ids) -> Ids:
        """Return the replacements of the `clean` tokens [S], in rows with these keys [S]: [S]."""
        decision = to_unit(draw_bits(keys, Purpose.CORRUPTION, columns[:, None])[:, 0])
        is_masked = decision < self.config.mask_share
        corrupted = np.where(is_masked, self.vocabulary.mask_id, clean)
        is_random = ~is_masked & (decision < self.config.mask_share + self.config.random_share)
        positions = columns[is_random][:, None]
        drawn = to_unit(draw_bits(keys[is_random], Purpose.REPLACEMENT, positions)[:, 0])
        rank = np.searchsorted(self._cumulative, drawn, side="right")
        last = len(self.vocabulary.ordinary_ids) - 1
        replacements = self.vocabulary.ordinary_ids[np.minimum(rank, last)]
        if self._occurring is not None:
            # A second draw, so that all others are as they are without this rule.
            is_unused = self.vocabulary.unigram_counts[replacements] == 0
            where = (keys[is_random][is_unused], Purpose.SECOND_REPLACEMENT, positions[is_unused])
            again = to_unit(draw_bits(*where)[:, 0]) * len(self._occurring)
            replacements[is_unused] = self._occurring[again.astype(np.int64)]
        corrupted[is_random] = replacements
        return corrupted
