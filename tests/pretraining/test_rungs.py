"""What goes with a size of `auto`: values, rates and tokens a step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.model.config import parse_sizes
from maskwright.pretraining.rungs import (
    COUNTED_EPOCHS,
    Pay,
    Size,
    fill_card,
    find_recipe,
    pick_size,
    set_rung,
)
from maskwright.runs.config import resolve

SIZES = [Size(0.0, 64, 1), Size(1.0, 128, 2), Size(3.0, 192, 2)]
LADDER = [Size(*size) for size in parse_sizes(resolve("auto").model.sizes)]


@pytest.mark.parametrize(
    ("paid", "width", "needs"),
    [
        (0.0, 64, "width 128, layers 2 needs"),
        (0.5, 64, "20 minutes on this machine would buy width 128, layers 2"),
        (1.0, 128, "30 minutes on this machine would buy width 192, layers 2"),
        (9.0, 192, "no larger one"),
    ],
)
def test_the_largest_size_that_is_paid_is_picked(paid: float, width: int, needs: str) -> None:
    size, reason = pick_size(SIZES, lambda _: Pay(paid, paid, 600.0), "this machine")
    assert size.width == width
    assert needs in reason
    assert "FLOP" not in reason


def test_the_reason_says_whether_budget_or_text_decided() -> None:
    _, by_budget = pick_size(SIZES, lambda _: Pay(0.5, 0.5, 60.0), "here")
    _, by_text = pick_size(SIZES, lambda _: Pay(0.4, 50.0, 60.0), "here")
    assert "epochs" not in by_budget
    assert f"{COUNTED_EPOCHS} epochs" in by_text
    assert "2.5 times as much text" in by_text


@given(st.floats(1, 1e12), st.floats(1, 1e12), st.floats(1e6, 1e10))
def test_passes_over_a_text_count_up_to_a_number(tokens: float, text: float, flops: float) -> None:
    pay = Pay.of(tokens, text, flops, 1.0)
    assert pay.counted <= pay.whole
    assert pay.counted <= COUNTED_EPOCHS * text * flops / 1e15
    assert (pay.counted == pay.whole) == (tokens <= COUNTED_EPOCHS * text)
    assert Pay.of(tokens, None, flops, 1.0).counted == pay.whole


@pytest.mark.parametrize("size", LADDER, ids=str)
def test_a_size_brings_its_values(size: Size) -> None:
    auto, wide = resolve("auto"), resolve("wide")
    config = set_rung(auto, size)
    assert (config.model.hidden_size, config.model.num_hidden_layers) == (size.width, size.layers)
    if find_recipe(size.width) == "auto":
        assert (config.optim, config.train, config.data) == (auto.optim, auto.train, auto.data)
        return
    factor = 384 / size.width
    assert config.optim.learning_rate == pytest.approx(factor * wide.optim.learning_rate)
    assert config.optim.muon_learning_rate == pytest.approx(factor * wide.optim.muon_learning_rate)
    assert config.masking == wide.masking
    assert config.train.seq_length_schedule == wide.train.seq_length_schedule
    assert config.train.num_candidates == 0
    assert config.data.max_seq_length == wide.data.max_seq_length


def test_values_of_the_user_stay() -> None:
    given_values = {
        "optim": {"learning_rate": 0.001, "weight_decay": 0, "muon_weight_decay": "0"},
        "masking": {"rate": 0.2},
        "train": {"max_tokens": 10**9, "batch_tokens": 12_288},
    }
    config = set_rung(resolve("auto", None, given_values), Size(0.0, 512, 12))
    assert config.optim.learning_rate == 0.001
    assert (config.optim.weight_decay, config.optim.muon_weight_decay) == (0.0, 0.0)
    assert config.masking.rate == 0.2
    assert (config.train.max_tokens, config.train.max_minutes) == (10**9, None)
    assert config.train.batch_tokens == 12_288
    assert fill_card(config, 1e15, 1e8, 0.0, 1e10) == config


@given(st.floats(1e13, 1e16), st.floats(1e8, 1e10), st.floats(0, 1e13), st.floats(1e7, 1e12))
def test_a_step_fills_the_card_unless_it_would_be_one_of_few(
    peak: float, flops: float, update: float, tokens: float
) -> None:
    config = set_rung(resolve("auto"), Size(0.0, 512, 12))
    step = fill_card(config, peak, flops, update, tokens).train.batch_tokens
    assert step >= 8192
    assert math.log2(step).is_integer()
    assert step == 8192 or tokens / step >= 2000
    is_busy = step * flops >= 0.003 * peak
    assert is_busy or 2 * step > tokens / 2000


def test_the_ladder_of_an_h200_for_three_minutes() -> None:
    """As measured: 512 x 12, steps of 32,768 tokens (benchmarks gpu-day, piece auto)."""
    config = set_rung(resolve("auto"), Size(13.0, 512, 12))
    filled = fill_card(config, 989e12, 261e6, 0.63e12, 150e6)
    assert filled.train.batch_tokens == 32_768
    assert filled.optim.learning_rate == pytest.approx(0.00225)
