"""An architecture stated and resolved is itself."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.config import from_mapping, to_mapping
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, ModelConfig, resolve_config, state_architecture
from tests.models import small_config

FULL, SLIDING = "full_attention", "sliding_attention"


def resolve_again(config: EncoderConfig) -> EncoderConfig:
    """Through the plain values of a configuration file."""
    stated = from_mapping(ModelConfig, to_mapping(state_architecture(config)))
    ids = ("pad_token_id", "cls_token_id", "sep_token_id", "mask_token_id")
    return resolve_config(
        stated, vocab_size=60, max_seq_length=8, **{name: getattr(config, name) for name in ids}
    )


OTHERS: list[dict[str, Any]] = [
    {"preset": "bert"},
    {"preset": "bert", "positions": "sinusoidal", "type_vocab_size": 0, "head_transform": False},
    {"preset": "modernbert", "global_attn_every_n_layers": 2, "norm_eps": 1e-7},
    {"preset": "eurobert", "qk_norm": True, "tie_word_embeddings": True, "mlp_bias": True},
    {"preset": "bert", "hidden_act": "relu", "head_act": "silu", "hidden_dropout": 0.3},
]


@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_what_is_stated_is_resolved(fields: dict[str, Any]) -> None:
    config = small_config(**fields)
    assert resolve_again(config) == config
    assert state_architecture(config).preset == fields["preset"]
    assert state_architecture(config).vocab_size == config.vocab_size == 64


@given(st.lists(st.sampled_from([FULL, SLIDING]), min_size=2, max_size=2))
def test_any_order_of_layers(types: list[Any]) -> None:
    config = dataclasses.replace(small_config(preset="modernbert"), layer_types=tuple(types))
    assert resolve_again(config) == config
    assert bool(state_architecture(config).layer_types) == (types[0] == SLIDING)


def test_layers_are_stated_once() -> None:
    with pytest.raises(ConfigError, match=r"is given beside model.layer_types"):
        ModelConfig(num_hidden_layers=1, layer_types=(FULL,), global_attn_every_n_layers=1)


def test_there_is_a_row_for_every_token() -> None:
    with pytest.raises(ConfigError, match=r"model.vocab_size = 32 is less than the 64 tokens"):
        resolve_config(ModelConfig(vocab_size=32), vocab_size=64, max_seq_length=8)
    assert resolve_config(ModelConfig(vocab_size=96), vocab_size=64, max_seq_length=8).vocab_size
