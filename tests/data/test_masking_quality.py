"""Masks and replacements follow their laws, and other people's bugs are refused.

A statistic fails at a p-value below 1e-6; here are some 80 of them, so that with other seeds good
masks would fail one time in 10,000. A bug is refused at a p-value below 1e-9. The bugs are those of
real projects: positions sorted by integers with ties, positions drawn with replacement, shares of
81/9/10, random tokens from the whole vocabulary.
"""

from functools import cache
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from maskwright.data.batch import collate
from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.masking import MaskedRows, Masker, Vocabulary
from maskwright.data.rows import DataPosition
from tests.data.masking_helpers import hidden_flags
from tests.data.randomness import p_of_cells, p_of_z
from tests.helpers import MASK, NUM_SPECIAL, random_corpus, row_source, special_ids, vocabulary

PASSES, REFUSED = 1e-6, 1e-9
ROWS, LENGTH = 8000, 40
RATE = 0.25  # ten tokens of each row
ORDINARY = 600  # tokens, after the special ones
SIZE = NUM_SPECIAL + ORDINARY
IDS = np.random.default_rng(0).integers(NUM_SPECIAL, SIZE, (ROWS, LENGTH))
WORD_STARTS = np.random.default_rng(1).random((ROWS, LENGTH)) < 0.7
WORD_STARTS[:, 0] = True

Flags = NDArray[np.bool_]
Strategy = Literal["tokens", "words", "spans"]
all_strategies = pytest.mark.parametrize("strategy", ["tokens", "words", "spans"])


def mask(
    config: MaskingConfig,
    *,
    seed: int = 0,
    epoch: int = 0,
    row: int = 0,
    counts: NDArray[np.int64] | None = None,
) -> MaskedRows:
    """8,000 rows of 40 random tokens, masked."""
    counts = np.ones(SIZE, np.int64) if counts is None else counts
    masker = Masker(config, Vocabulary(SIZE, MASK, np.arange(NUM_SPECIAL, SIZE), counts))
    keys = derive_keys(seed, epoch, row + np.arange(ROWS))
    return masker.mask(IDS, WORD_STARTS, keys, config.rate)


@cache
def hide(strategy: Strategy, seed: int = 0, epoch: int = 0, row: int = 0) -> Flags:
    masked = mask(MaskingConfig(RATE, strategy=strategy), seed=seed, epoch=epoch, row=row)
    return hidden_flags(masked, IDS.shape)


def p_of_means(values: NDArray[np.floating]) -> float:
    """[R, C]: that no column of independent rows has a mean other than 0."""
    sums, deviations = values.sum(axis=0), (values**2).sum(axis=0) ** 0.5
    furthest = float((np.abs(sums) / np.maximum(deviations, 1e-9)).max())
    return min(1.0, values.shape[1] * p_of_z(furthest))


def p_of_positions(hidden: Flags, rate: float, maskable: Flags | None = None) -> float:
    """No position is hidden more often than another."""
    flags = np.ones_like(hidden) if maskable is None else maskable
    return p_of_means((hidden - rate) * flags)


def p_of_slope(hidden: Flags) -> float:
    """Early positions are hidden as often as late ones."""
    from_middle = np.arange(LENGTH) - (LENGTH - 1) / 2
    return p_of_means((hidden @ from_middle)[:, None])


def p_of_pairs(hidden: Flags) -> float:
    """Two positions are among k single ones with the probability k (k - 1) / (L (L - 1))."""
    counts = hidden.sum(axis=1)[:, None]
    expected = counts * (counts - 1) / (LENGTH * (LENGTH - 1))
    one, other = np.triu_indices(LENGTH, 1)
    return p_of_means((hidden[:, one] & hidden[:, other]) - expected)


def p_of_overlap(first: Flags, second: Flags) -> float:
    """Rows that are masked independently have ``rate^2`` of the positions in common."""
    return p_of_means(((first & second).sum(axis=1) - LENGTH * RATE**2)[:, None])


@all_strategies
def test_no_position_is_preferred(strategy: Strategy) -> None:
    hidden = hide(strategy)
    assert p_of_positions(hidden, RATE) > PASSES
    assert p_of_slope(hidden) > PASSES


def test_no_pair_of_positions_is_preferred() -> None:
    assert p_of_pairs(hide("tokens")) > PASSES
    assert p_of_pairs(hide("spans")) < REFUSED


@all_strategies
@pytest.mark.parametrize("place", [{"seed": 1}, {"epoch": 1}, {"row": 1}, {"row": 4096}])
def test_masks_of_another_place_are_independent(strategy: Strategy, place: dict[str, int]) -> None:
    assert p_of_overlap(hide(strategy), hide(strategy, **place)) > PASSES
    assert p_of_overlap(hide(strategy), hide(strategy)) < REFUSED


@all_strategies
def test_no_position_of_packed_rows_is_preferred(strategy: Strategy) -> None:
    """Not by its place in the row, and not by its place in its segment, from either end."""
    corpus = random_corpus(8000, 30)
    planner = row_source(corpus, max_seq_length=LENGTH).planner(LENGTH)
    rows, _ = planner.plan_rows(DataPosition(LENGTH), 2500)
    clean = collate(rows, LENGTH, corpus, special_ids())
    masker = Masker(MaskingConfig(RATE, strategy=strategy), vocabulary())
    keys = derive_keys(0, rows.epochs, rows.numbers)
    masked = masker.mask(clean.ids, clean.word_starts, keys, RATE)
    hidden, maskable = hidden_flags(masked, clean.ids.shape), clean.ids >= NUM_SPECIAL
    assert p_of_positions(hidden, RATE, maskable) > PASSES
    is_last = np.roll(clean.positions, -1, axis=1) == 0
    is_last[:, :-1] |= clean.segment_ids[:, 1:] != clean.segment_ids[:, :-1]
    for edge in (clean.positions == 1, np.roll(is_last, -1, axis=1)):  # beside [CLS], beside [SEP]
        at_edge = (edge & maskable) * (hidden - RATE)
        assert p_of_means(at_edge.sum(axis=1, keepdims=True)) > PASSES


def test_positions_sorted_by_integers_with_ties_are_refused() -> None:
    draws = np.random.default_rng(0).integers(0, LENGTH, (ROWS, LENGTH))
    order = np.argsort(draws, axis=1, kind="stable")
    hidden = np.zeros((ROWS, LENGTH), dtype=bool)
    np.put_along_axis(hidden, order[:, :10], np.array(True), axis=1)
    assert p_of_slope(hidden) < REFUSED


def test_positions_drawn_with_replacement_are_refused() -> None:
    drawn = np.random.default_rng(0).integers(0, LENGTH, (ROWS, 10))
    hidden = np.zeros((ROWS, LENGTH), dtype=bool)
    np.put_along_axis(hidden, drawn, np.array(True), axis=1)
    assert p_of_positions(hidden, RATE) < REFUSED  # fewer than a quarter


def decisions(masked: MaskedRows) -> tuple[NDArray[np.int64], Flags]:
    """[R, L] what stands for each token, 0 [MASK], 1 another one, 2 itself; which are hidden."""
    hidden = hidden_flags(masked, IDS.shape)
    kept = np.where(masked.input_ids == IDS, 2, 1)
    return np.where(masked.input_ids == MASK, 0, kept), hidden


SHARES = np.array([0.8, 0.1 * (1 - 1 / ORDINARY), 0.1 + 0.1 / ORDINARY])


def p_of_shares(kinds: NDArray[np.int64], groups: NDArray[np.int64] | int = 0) -> float:
    """80/10/10, in every group of tokens."""
    table = np.bincount((groups * 3 + kinds).ravel()).reshape(-1, 3)
    return min(p_of_cells(counts, counts.sum() * SHARES) for counts in table) * len(table)


@all_strategies
def test_shares_are_80_10_10_everywhere(strategy: Strategy) -> None:
    kinds, hidden = decisions(mask(MaskingConfig(RATE, strategy=strategy)))
    columns = np.broadcast_to(np.arange(LENGTH), IDS.shape)
    assert p_of_shares(kinds[hidden]) > PASSES
    assert p_of_shares(kinds[hidden], columns[hidden]) > PASSES
    assert p_of_shares(kinds[hidden], (IDS[hidden] - NUM_SPECIAL) // 60) > PASSES
    neighbors = hidden[:, :-1] & hidden[:, 1:]
    assert p_of_shares(kinds[:, 1:][neighbors], kinds[:, :-1][neighbors]) > PASSES
    other, hidden_too = decisions(mask(MaskingConfig(RATE, strategy=strategy), epoch=1))
    both = hidden & hidden_too
    assert p_of_shares(kinds[both], other[both]) > PASSES


def test_shares_of_two_independent_draws_are_refused() -> None:
    """81/9/10, when a draw for [MASK] and one for a random token overlap."""
    generator = np.random.default_rng(0)
    count = int(ROWS * LENGTH * RATE)
    kinds = np.where(
        generator.random(count) < 0.1, 2, np.where(generator.random(count) < 0.9, 0, 1)
    )
    assert p_of_shares(kinds) < REFUSED


def replacements(
    replacement: Literal["uniform", "unigram"], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The random tokens, and what they stand for."""
    config = MaskingConfig(0.9, mask_share=0.0, random_share=1.0, replacement=replacement)
    masked = mask(config, counts=counts)
    hidden = hidden_flags(masked, IDS.shape)
    return masked.input_ids[hidden], IDS[hidden]


ZIPF = np.concatenate([np.full(NUM_SPECIAL, 10**7), 10**6 // np.arange(1, ORDINARY + 1)])
ZIPF[-50:] = 0  # in the vocabulary, but not in the text


@pytest.mark.parametrize("replacement", ["uniform", "unigram"])
def test_replacements_are_drawn_as_they_should_be(
    replacement: Literal["uniform", "unigram"],
) -> None:
    drawn, originals = replacements(replacement, ZIPF)
    weights = ZIPF[NUM_SPECIAL:] if replacement == "unigram" else np.ones(ORDINARY)
    possible = np.flatnonzero(weights)
    counts = np.bincount(drawn, minlength=SIZE)
    assert counts.sum() == counts[NUM_SPECIAL + possible].sum()
    shares = weights[possible] / weights.sum()
    assert p_of_cells(counts[NUM_SPECIAL + possible], counts.sum() * shares) > PASSES
    # What a token is replaced by says nothing of what it was, nor of what replaced its neighbor.
    is_common = drawn < NUM_SPECIAL + 20
    share = shares[:20].sum()
    for group in ((originals - NUM_SPECIAL) // 60, np.append(False, is_common[:-1]).astype(int)):
        table = np.bincount(group * 2 + is_common).reshape(-1, 2)
        worst = min(p_of_cells(row, row.sum() * np.array([1 - share, share])) for row in table)
        assert worst * len(table) > PASSES


def test_mask_of_training_draws_only_tokens_that_occur() -> None:
    config = MaskingConfig(0.9, mask_share=0.0, random_share=1.0)
    words = Vocabulary(SIZE, MASK, np.arange(NUM_SPECIAL, SIZE), ZIPF)
    arguments = IDS, WORD_STARTS, derive_keys(0, 0, np.arange(ROWS)), 0.9
    free = Masker(config, words).mask(*arguments)
    masked = Masker(config, words, only_occurring=True).mask(*arguments)
    drawn = masked.input_ids[hidden_flags(masked, IDS.shape)]
    counts = np.bincount(drawn, minlength=SIZE)
    assert counts[ZIPF == 0].sum() == counts[:NUM_SPECIAL].sum() == 0
    occurring = counts[NUM_SPECIAL:-50]
    assert p_of_cells(occurring, np.full(len(occurring), len(drawn) / len(occurring))) > PASSES
    is_unused = ZIPF[free.input_ids] == 0  # only these draws are other ones
    assert np.array_equal(masked.input_ids[~is_unused], free.input_ids[~is_unused])
    unknown = Vocabulary(SIZE, MASK, words.ordinary_ids, np.zeros(SIZE, np.int64))
    all_zero = Masker(config, unknown, only_occurring=True).mask(*arguments)
    assert np.array_equal(all_zero.input_ids, free.input_ids)


def test_replacements_from_the_whole_vocabulary_are_refused() -> None:
    drawn = np.random.default_rng(0).integers(0, SIZE, ROWS * 36)
    assert (drawn < NUM_SPECIAL).any()
    counts = np.bincount(drawn, minlength=SIZE)
    expected = np.full(SIZE, 1e-3)  # nearly none of the special tokens
    expected[NUM_SPECIAL:] = len(drawn) / ORDINARY
    assert p_of_cells(counts, expected) < REFUSED
