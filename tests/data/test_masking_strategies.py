"""What holds for every strategy."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.config import MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.masking import build_strategy, choose_masked, draw_quotas
from tests.data.masking_helpers import assert_uniform, mask_rows
from tests.helpers import CLS, PAD, SEP

Strategy = Literal["tokens", "words", "spans"]
all_strategies = pytest.mark.parametrize("strategy", ["tokens", "words", "spans"])
cut_strategies = pytest.mark.parametrize("strategy", ["tokens", "spans"])


def config_of(strategy: Strategy, rate: float = 0.15) -> MaskingConfig:
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


@cut_strategies
@pytest.mark.parametrize("rate", [0.15, 0.4, 0.9])
def test_every_row_hides_its_quota_exactly(strategy: Strategy, rate: float) -> None:
    ids = np.full((300, 40), 9)
    ids[:, 30:] = PAD  # 30 tokens of text
    outcome = mask_rows(config_of(strategy, rate), ids)
    quotas = draw_quotas(derive_keys(0, 0, np.arange(300)), np.full(300, 30), rate)
    assert outcome.counts.tolist() == quotas.tolist()


@all_strategies
@pytest.mark.parametrize("length", [16, 64])
def test_every_position_is_equally_likely(strategy: Strategy, length: int) -> None:
    outcome = mask_rows(config_of(strategy), np.full((20_000, length), 9))
    assert_uniform(outcome.hidden.sum(axis=0))


@all_strategies
def test_special_tokens_and_padding_are_never_hidden(strategy: Strategy) -> None:
    generator = np.random.default_rng(0)
    ids = generator.integers(0, 64, (500, 32))
    outcome = mask_rows(config_of(strategy, 0.5), ids)
    assert outcome.hidden.any()
    assert not (outcome.hidden & (ids < 5)).any()
    unchanged = ~outcome.hidden
    assert np.array_equal(outcome.masked.input_ids[unchanged], ids[unchanged])


@all_strategies
def test_rows_without_ordinary_tokens_hide_nothing(strategy: Strategy) -> None:
    ids = np.array([[CLS, SEP, *6 * [PAD]], [PAD] * 8])
    outcome = mask_rows(config_of(strategy, 0.9), ids)
    assert not outcome.hidden.any()
    assert np.array_equal(outcome.masked.input_ids, ids)


@all_strategies
@given(st.data())
def test_a_row_is_masked_alike_in_any_company(strategy: Strategy, data: st.DataObject) -> None:
    generator = np.random.default_rng(1)
    ids, starts = generator.integers(0, 64, (12, 24)), generator.random((12, 24)) < 0.5
    whole = mask_rows(config_of(strategy, 0.3), ids, starts)
    first = data.draw(st.integers(0, 11))
    last = data.draw(st.integers(first + 1, 12))
    part = mask_rows(config_of(strategy, 0.3), ids[first:last], starts[first:last], first_row=first)
    assert np.array_equal(part.masked.input_ids, whole.masked.input_ids[first:last])
    assert np.array_equal(part.masked.positions, whole.masked.positions[first:last])
    assert np.array_equal(part.masked.labels, whole.masked.labels[first:last])


@cut_strategies
def test_a_higher_rate_hides_the_same_tokens_and_more(strategy: Strategy) -> None:
    chosen = build_strategy(config_of(strategy))
    keys, flags = derive_keys(np.arange(200)), np.ones((200, 30), dtype=bool)
    few = choose_masked(chosen, keys, flags, flags, 0.15)
    many = choose_masked(chosen, keys, flags, flags, 0.4)
    assert not (few & ~many).any()
    assert many.sum() > few.sum()


@all_strategies
def test_the_mean_share_is_the_rate(strategy: Strategy) -> None:
    generator = np.random.default_rng(2)
    starts = generator.random((8000, 24)) < 0.6
    outcome = mask_rows(config_of(strategy), np.full((8000, 24), 9), starts)
    assert outcome.hidden.mean() == pytest.approx(0.15, rel=0.01)
