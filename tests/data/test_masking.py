"""Masking, strategy by strategy.

What holds for all is in test_exactness (labels, quotas, special tokens, any company) and in
test_masking_quality (shares, replacements, positions).
"""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskwright.config import from_mapping
from maskwright.data.config import STRATEGIES, MaskingConfig
from maskwright.data.counter_rng import Bits, Purpose, derive_keys, to_unit
from maskwright.data.masking import (
    Flags,
    Masker,
    SpanMasking,
    Vocabulary,
    WordMasking,
    build_strategy,
    choose_masked,
    draw_quotas,
)
from maskwright.errors import ConfigError
from tests.data.masking_helpers import assert_share, assert_uniform, hidden_flags, mask_rows
from tests.helpers import CLS, MASK, NUM_SPECIAL, PAD, SEP, VOCAB_SIZE, vocabulary

IDS = np.random.default_rng(0).integers(0, VOCAB_SIZE, (4000, 40))


@pytest.mark.parametrize(("mask", "random"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.25)])
def test_shares_are_free(mask: float, random: float) -> None:
    config = MaskingConfig(rate=0.5, mask_share=mask, random_share=random)
    outcome = mask_rows(config, np.full((3000, 40), 9))
    seen = outcome.masked.input_ids[outcome.hidden]
    assert_share(int((seen == MASK).sum()), len(seen), mask)
    changed = int(((seen != 9) & (seen != MASK)).sum())
    assert_share(changed, len(seen), random * (1 - 1 / (VOCAB_SIZE - NUM_SPECIAL)))


def test_a_corpus_made_of_id_0_can_be_learned() -> None:
    words = Vocabulary(8, mask_id=7, ordinary_ids=np.arange(6), unigram_counts=np.ones(8, np.int64))
    ids = np.zeros((50, 20), dtype=np.int64)
    masked = Masker(MaskingConfig(rate=0.5), words).mask(
        ids, np.ones(ids.shape, dtype=bool), derive_keys(np.arange(50)), 0.5
    )
    assert (masked.labels == 0).sum() == 500
    assert hidden_flags(masked, ids.shape).sum() == 500


def test_protected_tokens_are_never_hidden() -> None:
    config = MaskingConfig(rate=0.5)
    outcome = mask_rows(config, IDS, masker=Masker(config, vocabulary(), (9, 30)))
    protected = np.isin(IDS, [9, 30])
    assert protected.any()
    assert not (outcome.hidden & protected).any()
    assert not np.isin(outcome.masked.labels, [9, 30]).any()
    share = outcome.hidden.sum() / (~protected & (IDS >= NUM_SPECIAL)).sum()
    assert share == pytest.approx(0.5, abs=0.001)  # the rate is of what may be hidden


def test_which_tokens_are_hidden_does_not_decide_what_replaces_them() -> None:
    hidden = mask_rows(MaskingConfig(rate=0.1), IDS)
    more = mask_rows(MaskingConfig(rate=0.6), IDS)
    both = hidden.hidden & more.hidden
    assert np.array_equal(hidden.masked.input_ids[both], more.masked.input_ids[both])


def test_slots_are_sized_by_the_highest_rate_of_the_run() -> None:
    masker = Masker(MaskingConfig(rate=0.1, final_rate=0.3), vocabulary())
    assert masker.num_entries(40) == 12
    assert Masker(MaskingConfig(rate=0.99, strategy="words"), vocabulary()).num_entries(16) == 16
    for rate in (0.1, 0.2, 0.3):
        outcome = mask_rows(masker.config, np.full((200, 40), 9), rate=rate, masker=masker)
        assert outcome.masked.labels.shape == (200, 12)
        assert outcome.counts.tolist() == [round(40 * rate)] * 200


all_strategies = pytest.mark.parametrize("strategy", STRATEGIES)
cut_strategies = pytest.mark.parametrize("strategy", ["tokens", "spans"])


def config_of(strategy: str, rate: float = 0.15) -> MaskingConfig:
    return MaskingConfig(rate=rate, strategy=strategy)


@given(st.floats(0.01, 0.99), st.integers(0, 300))
def test_quotas_round_to_a_neighbour(rate: float, count: int) -> None:
    keys = derive_keys(np.arange(50))
    quotas = draw_quotas(keys, np.full(50, count), rate)
    assert np.all((quotas >= np.floor(count * rate)) & (quotas <= np.ceil(count * rate)))
    assert np.all(quotas <= count)


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_quotas_have_the_right_mean_even_in_short_rows(count: int) -> None:
    quotas = draw_quotas(derive_keys(np.arange(40_000)), np.full(40_000, count), 0.15)
    assert quotas.mean() == pytest.approx(0.15 * count, abs=5 * 0.5 / 200)


@all_strategies
def test_rows_without_ordinary_tokens_hide_nothing(strategy: str) -> None:
    ids = np.array([[CLS, SEP, *6 * [PAD]], [PAD] * 8])
    outcome = mask_rows(config_of(strategy, 0.9), ids)
    assert not outcome.hidden.any()
    assert np.array_equal(outcome.masked.input_ids, ids)


@cut_strategies
def test_a_higher_rate_hides_the_same_tokens_and_more(strategy: str) -> None:
    chosen = build_strategy(config_of(strategy))
    keys, flags = derive_keys(np.arange(200)), np.ones((200, 30), dtype=bool)
    few = choose_masked(chosen, keys, flags, flags, 0.15)
    many = choose_masked(chosen, keys, flags, flags, 0.4)
    assert not (few & ~many).any()
    assert many.sum() > few.sum()


class EveryThirdToken:
    """A strategy of a test: the tokens 0, 3, 6 … are masked first."""

    whole_groups = False
    needs_words = False
    max_excess = 0

    def __init__(self, config: MaskingConfig) -> None:
        pass

    def draw_priorities(self, keys: Bits, maskable: Flags, word_starts: Flags) -> Bits:
        positions = np.arange(maskable.shape[1], dtype=np.uint64)
        return np.broadcast_to(positions % np.uint64(3), maskable.shape)


def test_a_strategy_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "thirds", f"{__name__}:EveryThirdToken")
    config = from_mapping(MaskingConfig, {"strategy": "thirds", "rate": 1 / 3})
    outcome = mask_rows(config, np.full((5, 30), 9))
    assert np.flatnonzero(outcome.hidden.all(axis=0)).tolist() == list(range(0, 30, 3))
    assert outcome.counts.tolist() == [10] * 5


def test_an_unknown_strategy_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(MaskingConfig, {"strategy": "word"})
    assert (caught.value.field, caught.value.value) == ("strategy", "word")
    assert "words" in caught.value.remedy


WORDS = MaskingConfig(strategy="words")


def words_of(starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[R, L] number of each token's word in its row."""
    return np.cumsum(starts, axis=1, dtype=np.int64)


@given(st.floats(0.02, 0.98), st.floats(0.1, 1.0), st.integers(0, 100))
def test_words_are_hidden_whole_or_not_at_all(rate: float, share: float, seed: int) -> None:
    starts = np.random.default_rng(seed).random((20, 30)) < share
    starts[:, 0] = True
    config = MaskingConfig(rate=rate, strategy="words")
    outcome = mask_rows(config, np.full((20, 30), 9), starts)
    assert outcome.counts.max() <= np.ceil(30 * rate) + WordMasking.max_excess
    for hidden, words in zip(outcome.hidden, words_of(starts), strict=True):
        for word in np.unique(words):
            of_word = hidden[words == word]
            if len(of_word) <= WordMasking.max_excess + 1:
                assert len(np.unique(of_word)) == 1
            else:  # the first or the last tokens; in the middle only where a quota ends twice
                assert np.abs(np.diff(of_word.astype(int))).sum() <= 2


def choose_words_slowly(priorities: list[int], quota: int, offset: int, extra: int) -> list[bool]:
    """Return the masked tokens of a row without special tokens: the twin of `_choose_groups`."""
    order = sorted(range(len(priorities)), key=lambda token: priorities[token])
    in_quota = [(slot + offset) % len(order) < quota for slot in range(len(order))]
    masked = [False] * len(order)
    for slot, token in enumerate(order):
        begins = next(s for s, other in enumerate(order) if priorities[other] == priorities[token])
        number = slot - begins  # of the token in its word
        masked[token] = in_quota[begins if number <= extra else slot - extra]
    return masked


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=12),
    st.sampled_from([0.01, 0.15, 0.4, 0.97]),
    st.integers(0, 1000),
)
def test_choose_groups_is_its_slow_twin(lengths: list[int], rate: float, row: int) -> None:
    starts = np.concatenate([np.arange(length) == 0 for length in lengths])[None]
    keys, everywhere = derive_keys(0, 0, np.arange(row, row + 1)), np.ones(starts.shape, bool)
    chosen = choose_masked(build_strategy(WORDS), keys, everywhere, starts, rate)
    num_tokens = np.array([starts.size])
    priorities = WordMasking(WORDS).draw_priorities(keys, everywhere, starts)[0].tolist()
    unit = to_unit(derive_keys(keys.view(np.int64), Purpose.WORD_OFFSET))[0]
    quota = int(draw_quotas(keys, num_tokens, rate)[0])
    slow = choose_words_slowly(priorities, quota, int(unit * starts.size), WordMasking.max_excess)
    assert chosen[0].tolist() == slow


def test_the_mean_count_is_the_quota() -> None:
    # Words of 1, 2, 3, 4 pieces, again and again: 30 tokens, of which 6 are to be hidden.
    starts = np.tile([1, 1, 0, 1, 0, 0, 1, 0, 0, 0], 3).astype(bool)
    outcome = mask_rows(
        MaskingConfig(rate=0.2, strategy="words"),
        np.full((20_000, 30), 9),
        np.tile(starts, (20_000, 1)),
    )
    assert outcome.counts.mean() == pytest.approx(6.0, abs=5 * outcome.counts.std() / 20_000**0.5)
    assert outcome.counts.std() < 1.6


def test_long_words_are_hidden_as_often_as_short_ones() -> None:
    starts = np.tile([1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0], 2).astype(bool)  # 1, 2, 3, 5 pieces
    outcome = mask_rows(WORDS, np.full((40_000, 22), 9), np.tile(starts, (40_000, 1)))
    shares = outcome.hidden[:, starts].mean(axis=0)
    assert shares == pytest.approx(np.full(8, 0.15), abs=5 * (0.15 * 0.85 / 40_000) ** 0.5)


def test_a_word_of_many_pieces_never_overflows_the_slots() -> None:
    ids, starts = np.full((4000, 64), 9), np.zeros((4000, 64), dtype=bool)
    starts[:, [0, 40]] = True
    masker = Masker(WORDS, vocabulary())
    outcome = mask_rows(WORDS, ids, starts)
    assert outcome.masked.labels.shape == (4000, masker.num_entries(64)) == (4000, 16)
    assert outcome.counts.mean() == pytest.approx(0.15 * 64, abs=0.2)


ONE_OF_EACH = np.concatenate([np.arange(length) == 0 for length in range(1, 21)])  # 210 tokens
LENGTH_OF_WORD = np.repeat(np.arange(1, 21), np.arange(1, 21))


@pytest.mark.parametrize("rate", [0.15, 0.4])
@all_strategies
def test_choose_masked_has_one_probability_for_words_of_1_to_20_tokens(
    strategy: str, rate: float
) -> None:
    """Prints P(token), P(whole word) and P(any token) by the length of the word (pytest -s)."""
    num_rows = 20_000
    starts = np.tile(ONE_OF_EACH, (num_rows, 1))
    config, keys = config_of(strategy, rate), derive_keys(0, 0, np.arange(num_rows))
    hidden = choose_masked(build_strategy(config), keys, np.ones_like(starts), starts, rate)
    print(f"\n{strategy}, rate {rate}\ntokens   token   whole     any")
    for length in range(1, 21):
        word = hidden[:, length == LENGTH_OF_WORD]
        whole, some = word.all(axis=1).mean(), word.any(axis=1).mean()
        print(f"{length:6}  {word.mean():.4f}  {whole:.4f}  {some:.4f}")
        # The tokens of a word are at most as uneven as if they were one draw.
        assert word.mean() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / num_rows) ** 0.5)
        deviations = np.abs(word.mean(axis=0) - rate) / (rate * (1 - rate) / num_rows) ** 0.5
        assert deviations.max() < 5
        if strategy == "words" and length <= 7:
            assert whole == some


Lengths = Literal["geometric", "uniform"]


def span_masking(lengths: Lengths, longest: int) -> SpanMasking:
    return SpanMasking(
        MaskingConfig(strategy="spans", span_lengths=lengths, max_span_length=longest)
    )


def run_lengths(hidden: np.ndarray) -> np.ndarray:
    """Lengths of the hidden runs of one row, taken as a circle."""
    row = np.roll(hidden, -int(np.argmin(hidden)))  # begins with an unmasked token
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return edges[1::2] - edges[::2]


def test_geometric_lengths_fall_by_a_fifth_and_end_at_the_longest() -> None:
    strategy = span_masking("geometric", 10)
    lengths = strategy.draw_lengths(derive_keys(np.arange(400)), np.arange(100))
    expected = 0.8 ** np.arange(10)
    expected /= expected.sum()
    for length, share in enumerate(expected, start=1):
        assert_share(int((lengths == length).sum()), lengths.size, float(share))
    assert lengths.mean() == pytest.approx(3.8, abs=0.05)  # as in SpanBERT


def test_uniform_lengths_are_equally_likely() -> None:
    strategy = span_masking("uniform", 6)
    lengths = strategy.draw_lengths(derive_keys(np.arange(400)), np.arange(100))
    assert_uniform(np.bincount(lengths.ravel(), minlength=7)[1:])


@pytest.mark.parametrize("lengths", ["geometric", "uniform"])
def test_the_one_span_of_a_small_quota_is_whole(lengths: Lengths) -> None:
    strategy = span_masking(lengths, 5)
    keys, flags = derive_keys(np.arange(2000)), np.ones((2000, 50), dtype=bool)
    hidden = choose_masked(strategy, keys, flags, flags, 3 / 50)
    assert hidden.sum(axis=1).tolist() == [3] * 2000
    runs = [run_lengths(row) for row in hidden]
    # One span of three or more, cut at three; else a shorter one and the beginning of another.
    drawn = strategy.draw_lengths(keys, np.arange(50))
    share_long = float((drawn >= 3).mean())
    assert sum(run.max() == 3 for run in runs) / 2000 >= share_long - 0.05


def test_spans_of_one_token_are_single_tokens() -> None:
    strategy = span_masking("geometric", 1)
    keys, flags = derive_keys(np.arange(50)), np.ones((50, 30), dtype=bool)
    priorities = strategy.draw_priorities(keys, flags, flags)
    assert len(np.unique(priorities)) == priorities.size


def test_a_span_longer_than_the_row_is_no_trouble() -> None:
    config = MaskingConfig(rate=0.5, strategy="spans", span_lengths="uniform", max_span_length=40)
    outcome = mask_rows(config, np.full((4000, 8), 9))
    assert outcome.counts.tolist() == [4] * 4000
    assert_uniform(outcome.hidden.sum(axis=0))
