from typing import Literal

import numpy as np
import pytest

from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.masking import IGNORED, Masker, Vocabulary
from tests.data.masking_helpers import assert_share, assert_uniform, hidden_flags, mask_rows
from tests.helpers import MASK, NUM_SPECIAL, VOCAB_SIZE, vocabulary

IDS = np.random.default_rng(0).integers(0, VOCAB_SIZE, (4000, 40))


def test_shares_are_80_10_10() -> None:
    ids = np.full((20_000, 40), 9)
    outcome = mask_rows(MaskingConfig(), ids)
    seen = outcome.masked.input_ids[outcome.hidden]
    total, ordinary = len(seen), VOCAB_SIZE - NUM_SPECIAL
    assert_share(int((seen == MASK).sum()), total, 0.8)
    # A random token may be the token itself, so a few more than a tenth stay.
    assert_share(int((seen == 9).sum()), total, 0.1 + 0.1 / ordinary)
    assert_share(int(((seen != 9) & (seen != MASK)).sum()), total, 0.1 * (1 - 1 / ordinary))


@pytest.mark.parametrize(("mask", "random"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.25)])
def test_shares_are_free(mask: float, random: float) -> None:
    config = MaskingConfig(rate=0.5, mask_share=mask, random_share=random)
    outcome = mask_rows(config, np.full((3000, 40), 9))
    seen = outcome.masked.input_ids[outcome.hidden]
    assert_share(int((seen == MASK).sum()), len(seen), mask)
    changed = int(((seen != 9) & (seen != MASK)).sum())
    assert_share(changed, len(seen), random * (1 - 1 / (VOCAB_SIZE - NUM_SPECIAL)))


@pytest.mark.parametrize("strategy", ["tokens", "words", "spans"])
def test_labels_are_copies_of_the_clean_input(
    strategy: Literal["tokens", "words", "spans"],
) -> None:
    before = IDS.copy()
    outcome = mask_rows(MaskingConfig(rate=0.4, strategy=strategy), IDS)
    assert np.array_equal(IDS, before)  # the input is left as it is
    rows, slots = np.nonzero(outcome.masked.labels != IGNORED)
    positions, labels = outcome.masked.positions[rows, slots], outcome.masked.labels[rows, slots]
    assert np.array_equal(labels, IDS[rows, positions])
    assert labels.min() >= NUM_SPECIAL  # [MASK] and the others are never labels
    # Every hidden token has one label: no position twice in a row.
    assert len(np.unique(rows * 40 + positions)) == len(rows)


def test_unused_slots_are_ignored_and_point_at_the_first_token() -> None:
    outcome = mask_rows(MaskingConfig(rate=0.4), IDS)
    unused = outcome.masked.labels == IGNORED
    assert unused.any()
    assert (outcome.masked.positions[unused] == 0).all()


def test_a_corpus_made_of_id_0_can_be_learned() -> None:
    words = Vocabulary(8, mask_id=7, ordinary_ids=np.arange(6), unigram_counts=np.ones(8, np.int64))
    ids = np.zeros((50, 20), dtype=np.int64)
    masked = Masker(MaskingConfig(rate=0.5), words).mask(
        ids, np.ones(ids.shape, dtype=bool), derive_keys(np.arange(50)), 0.5
    )
    assert (masked.labels == 0).sum() == 500
    assert hidden_flags(masked, ids.shape).sum() == 500


def test_uniform_replacements_are_ordinary_and_equally_likely() -> None:
    config = MaskingConfig(rate=0.5, mask_share=0.0, random_share=1.0)
    outcome = mask_rows(config, np.full((6000, 40), 9))
    drawn = np.bincount(outcome.masked.input_ids[outcome.hidden], minlength=VOCAB_SIZE)
    assert drawn[:NUM_SPECIAL].sum() == 0
    assert_uniform(drawn[NUM_SPECIAL:])


def test_unigram_replacements_follow_the_frequencies() -> None:
    counts = np.zeros(VOCAB_SIZE, np.int64)
    counts[:NUM_SPECIAL] = 10**6  # special tokens are common, and still never drawn
    counts[[9, 11, 60]] = [100, 300, 600]
    config = MaskingConfig(rate=0.5, mask_share=0.0, random_share=1.0, replacement="unigram")
    masker = Masker(config, vocabulary(counts))
    outcome = mask_rows(config, np.full((2000, 40), 20), masker=masker)
    seen = outcome.masked.input_ids[outcome.hidden]
    assert sorted(np.unique(seen)) == [9, 11, 60]
    for token, share in [(9, 0.1), (11, 0.3), (60, 0.6)]:
        assert_share(int((seen == token).sum()), len(seen), share)


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
    assert masker.num_slots(40) == 12
    assert Masker(MaskingConfig(rate=0.99, strategy="words"), vocabulary()).num_slots(16) == 16
    for rate in (0.1, 0.2, 0.3):
        outcome = mask_rows(masker.config, np.full((200, 40), 9), rate=rate, masker=masker)
        assert outcome.masked.labels.shape == (200, 12)
        assert outcome.counts.tolist() == [round(40 * rate)] * 200
