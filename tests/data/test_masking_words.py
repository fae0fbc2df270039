import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.masking import Masker, WordMasking, draw_quotas
from tests.data.masking_helpers import mask_rows
from tests.helpers import CLS, PAD, SEP, vocabulary

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
    for hidden, words in zip(outcome.hidden, words_of(starts), strict=True):
        for word in np.unique(words):
            assert len(np.unique(hidden[words == word])) == 1


@given(st.floats(0.02, 0.98), st.integers(0, 100))
def test_counts_stay_near_the_quota(rate: float, seed: int) -> None:
    starts = np.random.default_rng(seed).random((50, 30)) < 0.3
    outcome = mask_rows(MaskingConfig(rate=rate, strategy="words"), np.full((50, 30), 9), starts)
    quotas = draw_quotas(derive_keys(0, 0, np.arange(50)), np.full(50, 30), rate)
    assert np.all(outcome.counts <= quotas + WordMasking.extra_slots)


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
    ids, starts = np.full((200, 64), 9), np.zeros((200, 64), dtype=bool)
    starts[:, [0, 40]] = True
    masker = Masker(WORDS, vocabulary())
    outcome = mask_rows(WORDS, ids, starts)
    assert outcome.masked.labels.shape == (200, masker.num_slots(64)) == (200, 16)
    assert not outcome.hidden.any()  # 40 and 24 pieces: too long for a quota of 10


def test_special_tokens_between_words_stay_visible() -> None:
    ids = np.array([[CLS, 9, 9, SEP, CLS, 9, 9, 9, SEP, PAD]] * 500)
    starts = np.array([[1, 1, 0, 1, 1, 1, 0, 0, 1, 1]] * 500, dtype=bool)
    outcome = mask_rows(MaskingConfig(rate=0.5, strategy="words"), ids, starts)
    assert not outcome.hidden[:, [0, 3, 4, 8, 9]].any()
    assert np.array_equal(outcome.hidden[:, 1], outcome.hidden[:, 2])
    assert np.array_equal(outcome.hidden[:, 5], outcome.hidden[:, 7])
    assert 0 < outcome.hidden[:, 1].mean() < 1
