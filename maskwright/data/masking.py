"""Masking: which tokens are selected, what replaces them, and the labels.

The common part of all masking strategies.

A strategy gives every token a *time*: a random number that says when it would be hidden if more
and more tokens were. The tokens with the smallest times are hidden until a row's quota is full;
or, where tokens with equal times form a group (a word), groups are hidden whole until the quota is
about full. So the number of hidden tokens of a row does not depend on other rows, and a strategy
is one function.

Single tokens, each as likely as any other (Devlin et al. 2019, arXiv 1810.04805).

Whole words: if one piece of a word is hidden, all are.

After the whole-word models of google-research/bert, without their two flaws: words are told by
the tokenizer's own word starts and not by a "##", and long words are hidden as often as short ones.

Spans of neighbouring tokens (Joshi et al. 2020, SpanBERT, arXiv 1907.10529).

A span begins at every maskable token, with a random time and a random length; a token's time is
the earliest among the spans that cover it. The maskable tokens of a row form a circle: a span
passes over special tokens, and one that reaches over the end of the row goes on at its beginning.
So no place is hidden more often than another, at the edges neither. The last span of a row is cut
where the quota is full.

From clean rows to masked rows: the one place where tokens are hidden.

Labels are copied from the clean input before anything is replaced. One draw for each position
decides among [MASK], a random token and the token itself, so the three shares are what the
configuration says (80 / 10 / 10 in BERT). Random tokens are ordinary tokens: never special ones.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import Bits, Purpose, derive_keys, draw_bits, to_unit

Flags = NDArray[np.bool_]

LAST = np.uint64(2**64 - 1)  # the time of tokens that are never hidden


class MaskingStrategy(Protocol):
    """What a masking strategy provides."""

    #: Tokens of one time are hidden together or not at all; otherwise counts are exact.
    whole_groups: bool

    #: Whether it looks at where words begin.
    needs_words: bool

    #: Slots that a row may need beyond its quota, when the last group reaches beyond it.
    extra_slots: int

    def draw_times(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        """Times of all tokens: [R], [R, L], [R, L] -> [R, L]; of maskable ones they matter."""
        ...


def draw_quotas(keys: Bits, num_maskable: NDArray[np.int64], rate: float) -> NDArray[np.int64]:
    """Tokens to hide in each row: ``rate * num_maskable``, rounded up or down at random.

    The rounding has the right mean, so short rows are not over- or under-masked.

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
    """Which tokens of each row are hidden.

    Args:
        keys: [R], each a hash of (seed, epoch, row).
        maskable: [R, L], False on special tokens, padding and protected tokens.
        word_starts: [R, L], True where a word begins.

    Returns:
        [R, L], True on at most ``quota + strategy.extra_slots`` tokens of a row.
    """
    num_maskable = maskable.sum(axis=1)
    quotas = draw_quotas(keys, num_maskable, rate)
    times = np.where(maskable, strategy.draw_times(keys, maskable, word_starts), LAST)
    if not strategy.whole_groups:
        return _hide_first(times, quotas) & maskable
    turns = to_unit(derive_keys(keys.view(np.int64), Purpose.WORD_TURN)) * num_maskable
    turns = turns.astype(np.int64)
    return _hide_groups(times, quotas, num_maskable, turns, strategy.extra_slots) & maskable


def _hide_first(times: Bits, quotas: NDArray[np.int64]) -> Flags:
    """The `quotas` tokens of each row with the smallest times, exactly: [R, L]."""
    ordered = np.sort(times, axis=1)
    at_quota = ordered[np.arange(len(ordered)), np.maximum(quotas - 1, 0)][:, None]
    before, equal = times < at_quota, times == at_quota
    missing = (quotas - before.sum(axis=1))[:, None]
    return (before | (equal & (np.cumsum(equal, axis=1) <= missing))) & (quotas > 0)[:, None]


def _hide_groups(
    times: Bits,
    quotas: NDArray[np.int64],
    num_maskable: NDArray[np.int64],
    turns: NDArray[np.int64],
    extra: int,
) -> Flags:
    """Whole groups of equal times, about `quotas` tokens of each row: [R, L].

    The groups are laid around a circle of `num_maskable` places in the order of their times, the
    circle is turned at random, and a group is hidden if its first token falls on the first
    `quotas` places. So every group is hidden with the same probability however long it is, and
    the mean count is the quota; filling the quota from the smallest time on would hide long words
    less often, because they overrun it more often.
    """
    places = np.arange(times.shape[1])
    order = np.argsort(times, axis=1, kind="stable")
    ordered = np.take_along_axis(times, order, axis=1)
    is_first = np.ones(times.shape, dtype=bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_last = np.roll(is_first, -1, axis=1)
    first = np.maximum.accumulate(np.where(is_first, places, 0), axis=1)
    ends = np.where(is_last, places + 1, len(places))
    end = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    place = (first + turns[:, None]) % np.maximum(num_maskable, 1)[:, None]
    limit = quotas[:, None]
    is_within = (place < limit) & (place + end - first <= limit + extra)
    hidden = np.empty(times.shape, dtype=bool)
    np.put_along_axis(hidden, order, is_within, axis=1)
    return hidden


class TokenMasking:
    """Every token has a time of its own."""

    whole_groups = False
    needs_words = False
    extra_slots = 0

    def draw_times(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        return draw_bits(keys, Purpose.MASK_CHOICE, np.arange(word_starts.shape[1]))


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
