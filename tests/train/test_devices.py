"""GPUs of the table: their names, and what a step takes on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.pretraining.budget import count_flops_per_token
from maskwright.pretraining.prepared_data import guess_model
from maskwright.runs.config import resolve
from maskwright.train.devices import (
    CARDS,
    CARDS_A_NODE,
    Cards,
    find_card,
    parse_cards,
)

CONFIG = resolve(
    "babylm-10m", None, {"train": {"batch_tokens": 65536}, "data": {"max_seq_length": 512}}
)
MODEL = guess_model(CONFIG)
FLOPS = count_flops_per_token(CONFIG, MODEL)


def estimate(cards: str, model: EncoderConfig = MODEL, tokens: float = 65536) -> tuple[float, bool]:
    return parse_cards(cards, "device").estimate_step_seconds(model, tokens, FLOPS, 65536)


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("8xH100", "H100", 8), ("h200", "H200", 1), ("16 x a100", "A100", 16), ("4090", "RTX4090", 1),
     ("NVIDIA RTX 4090", "RTX4090", 1), ("1xL4", "L4", 1)],
)  # fmt: skip
def test_cards_are_read(text: str, name: str, count: int):
    cards = parse_cards(text, "device")
    assert (cards.card.name, cards.count) == (name, count)
    assert parse_cards(str(cards), "device") == cards
    assert cards.num_nodes == -(-count // CARDS_A_NODE)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("H20", "H200"), ("8xRTX409", "RTX4090"), ("TPU", "L40S"), ("", "H200"), ("0xH100", "8xH100"),
     ("9xH100", "8xH100"), ("xH100", "H100")],
)  # fmt: skip
def test_an_unknown_device_is_refused_with_the_nearest(text: str, remedy: str):
    with pytest.raises(ConfigError) as caught:
        parse_cards(text, "device")
    assert (caught.value.field, caught.value.value) == ("device", text)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_each_is_found_by_the_name_of_torch(card):
    name = card.name.replace("RTX", "GeForce RTX ")
    assert find_card(f"NVIDIA {name} and more") is card
    assert find_card("NVIDIA Nothing") is None


def test_the_speed_of_an_h200_is_the_measured_one():
    """1,268,511 tokens a second; rows of 128 in steps of 16,384: 1,073,117 (gpu-variants)."""
    seconds, is_measured = estimate("H200")
    assert 65536 / seconds == pytest.approx(1_268_511, rel=0.01)
    assert is_measured
    seconds, is_measured = estimate("H200", tokens=16384)
    assert 16384 / seconds == pytest.approx(1_073_117, rel=0.12)
    assert not estimate("H200", tokens=8192)[1]
    assert not estimate("H100")[1]
    assert not estimate("8xH200")[1]


@given(st.sampled_from(CARDS), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1024, 1 << 20))
def test_more_and_faster_cards_are_never_slower(card, count: int, tokens: int):
    def seconds(cards: Cards) -> float:
        return cards.estimate_step_seconds(MODEL, tokens, FLOPS, 65536)[0]

    assert 0 < seconds(Cards(card, count)) <= seconds(Cards(card))
    assert seconds(Cards(CARDS[0], count)) <= seconds(Cards(CARDS[1], count))
