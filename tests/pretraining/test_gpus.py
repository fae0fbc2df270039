"""GPUs of the table: their names, and what a step takes on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.pretraining.budget import count_flops
from maskwright.pretraining.build import resolve_model
from maskwright.pretraining.gpus import (
    CARDS,
    CARDS_A_NODE,
    Cards,
    find_card,
    own_tokens,
    parse_cards,
)
from maskwright.runs.config import resolve

CONFIG = resolve(
    "babylm-10m", None, {"train": {"batch_tokens": 65536}, "data": {"max_seq_length": 512}}
)
MODEL = resolve_model(CONFIG)
FLOPS = count_flops(CONFIG, MODEL)


def estimate(cards: str, model: EncoderConfig = MODEL, tokens: float = 65536) -> tuple[float, bool]:
    return parse_cards(cards, "device").time_step(model.hidden_size, tokens, FLOPS, 65536)


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


@pytest.mark.parametrize(
    ("recipe", "length", "tokens", "measured"),
    [("babylm-10m", 512, 65536, 1_268_511), ("babylm-10m", 128, 65536, 1_386_954),
     ("babylm-10m", 128, 16384, 1_073_117), ("base", 512, 65536, 405_682)],
)  # fmt: skip
def test_the_speed_of_an_h200_is_the_measured_one(
    recipe: str, length: int, tokens: int, measured: int
):
    rows = {"data": {"max_seq_length": length}, "train": {"seq_length_schedule": []}}
    config = resolve(recipe, None, rows)
    model = resolve_model(config)
    flops = count_flops(config, model)
    seconds, is_measured = Cards(CARDS[0]).time_step(model.hidden_size, tokens, flops, 65536)
    assert tokens / seconds == pytest.approx(measured, rel=0.05)
    assert is_measured


def test_what_was_not_measured_is_computed():
    assert estimate("H200")[1]
    assert not estimate("H200", tokens=8192)[1]
    assert not estimate("H100")[1]
    assert not estimate("8xH200")[1]


def test_fewer_tokens_in_a_forward_pass_are_slower():
    passes = [8192, 16384, 20000, 40000, 65536, 1 << 20]
    cards = Cards(CARDS[0])
    few, least, *between, many, most = (
        cards.time_step(MODEL.hidden_size, 1 << 20, FLOPS, tokens)[0] for tokens in passes
    )
    assert few == 2 * least > between[0] > between[1] > many == most
    assert estimate("H200", tokens=64)[0] == estimate("H200", tokens=16384)[0]


@given(st.sampled_from(CARDS), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1024, 1 << 20))
def test_more_and_faster_cards_are_never_slower(card, count: int, tokens: int):
    def seconds(cards: Cards) -> float:
        return cards.time_step(MODEL.hidden_size, tokens, FLOPS, 65536)[0]

    assert 0 < seconds(Cards(card, count)) <= seconds(Cards(card))
    assert seconds(Cards(CARDS[0], count)) <= seconds(Cards(CARDS[1], count))


@pytest.mark.parametrize(("given", "expected"), [("auto", 2048), (None, 2048), (512, 512)])
def test_a_card_computes_its_part_of_the_largest_step(given: object, expected: int):
    train = {"batch_tokens_schedule": ["0:4096", "0.5:16384"], "micro_batch_tokens": given}
    config = resolve("tiny", None, {"train": train}).train
    assert own_tokens(config, 8) == expected
    assert own_tokens(config, 1 << 10) == 16
