"""What a model configuration resolves to, and back; errors name field and value."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.config import from_mapping, to_mapping
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, ModelConfig, resolve_config, to_model_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model.presets import PRESETS
from tests.model.helpers import tiny_config
from tests.models import small_config


def parse(**fields: object) -> ModelConfig:
    return from_mapping(ModelConfig, fields, "model.")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"hidden_size": 768, "num_attention_heads": 10},
            "model.num_attention_heads = 10 does not divide model.hidden_size = 768. "
            "Choose 8, 12 or 16.",
        ),
        (
            {"hidden_size": 20, "num_attention_heads": 4},
            "model.num_attention_heads = 4 makes a head size of 5, but rotary positions need "
            "an even one. Choose 2, 5 or 10.",
        ),
        ({"hidden_dropout": 1.0}, "model.hidden_dropout = 1.0 must be between 0 and 1. Try 0.1."),
        ({"num_hidden_layers": 0}, "model.num_hidden_layers = 0 must be at least 1."),
        ({"norm_eps": 0.0}, "model.norm_eps = 0.0 must be positive."),
        ({"norm": "rmsnorm", "norm_bias": True}, "model.norm_bias = True has no effect: RMSNorm"),
        ({"preset": "bert", "first_attention_norm": False},
         "model.first_attention_norm = False requires model.norm_position = pre"),
        ({"positions": "learned", "rope_theta": 5.0},
         "model.rope_theta = 5.0 has no effect: model.positions is learned. Set it to rotary."),
        ({"preset": "bert", "attention_backend": "varlen"},
         "model.attention_dropout = 0.1 cannot be combined with model.attention_backend"),
        ({"hidden_act": "gleu"}, "model.hidden_act = gleu must be"),
        ({"preset": "robert"}, "model.preset = robert must be bert|modernbert|eurobert|roberta|"),
        ({"prediction_head_size": 8},
         "model.prediction_head_size = 8 cannot be combined with model.head_transform = True"),
        ({"preset": "ultrabert", "prediction_head_size": -1}, "model.prediction_head_size = -1 "),
        ({"preset": "ultrabert", "prediction_head_size": 0, "head_act": "relu"},
         "model.head_act = relu has no effect: model.head_transform is False. Set it to True."),
        ({"global_attn_every_n_layers": 0}, "model.global_attn_every_n_layers = 0 must be at"),
        ({"initializer_range": -1.0}, "model.initializer_range = -1.0 must not be negative."),
        (
            {
                "preset": "bert",
                "positions": "sinusoidal",
                "hidden_size": 9,
                "num_attention_heads": 1,
            },
            "model.hidden_size = 9 must be even for sinusoidal positions.",
        ),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused_in_one_line(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**fields)
    assert str(caught.value).startswith(message)


def test_an_input_longer_than_the_model_is_refused() -> None:
    config = parse(max_position_embeddings=64)
    with pytest.raises(
        ConfigError, match=r"^model\.max_position_embeddings = 64 is less than data"
    ):
        resolve_config(config, vocab_size=64, max_seq_length=128)
    assert resolve_config(config, vocab_size=64, max_seq_length=32).max_position_embeddings == 64


def test_a_padding_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model\.pad_token_id = 64 must be below vocab_size"):
        resolve_config(parse(), vocab_size=64, max_seq_length=8, pad_token_id=64)


def test_fields_win_over_the_preset() -> None:
    config = tiny_config(preset="bert", norm_position="pre", positions="rotary", rope_theta=7.0)
    assert (config.norm_position, config.positions, config.rope_theta) == ("pre", "rotary", 7.0)
    assert (config.norm, config.norm_eps, config.type_vocab_size) == ("layernorm", 1e-12, 2)


def test_some_fields_follow_others_unless_they_are_set() -> None:
    assert tiny_config(preset="bert", norm="rmsnorm").norm_bias is False
    assert tiny_config(preset="bert", hidden_act="relu").head_act == "relu"
    assert tiny_config(preset="bert", hidden_act="relu", head_act="gelu").head_act == "gelu"
    assert tiny_config(preset="modernbert", norm_position="post").first_attention_norm is True
    assert tiny_config(preset="eurobert", mlp_bias=True).decoder_bias is True
    assert tiny_config(preset="eurobert", mlp_bias=True, decoder_bias=False).decoder_bias is False
    assert tiny_config(preset="nomic_bert", hidden_act="gelu").head_act == "gelu"
    assert tiny_config(preset="roberta", hidden_act="relu").head_act == "gelu"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"preset": "gte"}, (False, True)),
        ({"preset": "gte", "mlp_bias": False}, (False, True)),
        ({"preset": "gte", "mlp_output_bias": False}, (False, False)),
        ({"preset": "bert", "mlp_bias": False}, (False, False)),
        ({"preset": "modernbert", "mlp_bias": True}, (True, True)),
        ({"preset": "modernbert", "mlp_bias": True, "mlp_output_bias": False}, (True, False)),
    ],
)
def test_the_second_bias_follows_the_first(
    fields: dict[str, object], expected: tuple[bool, bool]
) -> None:
    config = tiny_config(**fields)
    assert (config.mlp_bias, config.mlp_output_bias) == expected
    block = MaskedLanguageModel(config).encoder.blocks[0]
    names = {name for name, _ in block.named_parameters()}
    assert ("mlp.input.bias" in names, "mlp.output.bias" in names) == expected


def test_heads_are_64_wide_unless_set() -> None:
    def heads(**fields: object) -> int:
        return resolve_config(parse(**fields), vocab_size=64, max_seq_length=8).num_attention_heads

    assert [heads(hidden_size=width) for width in (16, 64, 256, 384)] == [1, 1, 4, 6]
    assert heads(hidden_size=384, num_attention_heads=4) == 4
    for wrong in ({"hidden_size": 200}, {"num_attention_heads": 0}):
        with pytest.raises(ConfigError, match="num_attention_heads"):
            heads(**wrong)


def test_inner_width_costs_the_same_gated_or_not() -> None:
    def inner(**fields: object) -> int:
        return resolve_config(parse(**fields), vocab_size=64, max_seq_length=8).intermediate_size

    assert inner(hidden_size=768, num_attention_heads=12) == 2048
    assert inner(hidden_size=768, num_attention_heads=12, preset="bert") == 3072
    assert inner(hidden_size=256) == 640
    assert inner(hidden_size=16) == 64


def test_every_nth_layer_is_global() -> None:
    config = tiny_config(num_hidden_layers=5, global_attn_every_n_layers=2, local_attention=9)
    kinds = [config.window(kind) for kind in config.layer_types]
    assert kinds == [None, 4, None, 4, None]
    assert config.theta("full_attention") == 160_000
    assert config.theta("sliding_attention") == 10_000


def test_presets_say_something_about_the_same_fields() -> None:
    names = [set(preset) for preset in PRESETS.values()]
    assert all(preset == names[0] for preset in names)


@given(st.integers(1, 256), st.integers(1, 64))
def test_suggested_heads_would_be_accepted(hidden_size: int, heads: int) -> None:
    sizes = {"hidden_size": hidden_size, "positions": "rotary"}
    try:
        parse(num_attention_heads=heads, **sizes)
    except ConfigError as error:
        remedy = error.remedy
        assert remedy.startswith("Choose ")
        for word in remedy.removeprefix("Choose ").rstrip(".").replace(" or ", ", ").split(", "):
            if word.isdigit():
                parse(num_attention_heads=int(word), **sizes)
            else:
                assert hidden_size % 2


FULL, SLIDING = "full_attention", "sliding_attention"


def resolve_again(config: EncoderConfig) -> EncoderConfig:
    """Through the plain values of a configuration file."""
    stated = from_mapping(ModelConfig, to_mapping(to_model_config(config)))
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
    assert to_model_config(config).preset == fields["preset"]
    assert to_model_config(config).vocab_size == config.vocab_size == 64


@given(st.lists(st.sampled_from([FULL, SLIDING]), min_size=2, max_size=2))
def test_any_order_of_layers(types: list[Any]) -> None:
    config = dataclasses.replace(small_config(preset="modernbert"), layer_types=tuple(types))
    assert resolve_again(config) == config
    assert bool(to_model_config(config).layer_types) == (types[0] == SLIDING)


def test_layers_are_stated_once() -> None:
    with pytest.raises(
        ConfigError,
        match=r"global_attn_every_n_layers = 1 cannot be combined with model.layer_types",
    ):
        ModelConfig(num_hidden_layers=1, layer_types=(FULL,), global_attn_every_n_layers=1)


def test_there_is_a_row_for_every_token() -> None:
    with pytest.raises(ConfigError, match=r"model.vocab_size = 32 is less than the 64 tokens"):
        resolve_config(ModelConfig(vocab_size=32), vocab_size=64, max_seq_length=8)
    assert resolve_config(ModelConfig(vocab_size=96), vocab_size=64, max_seq_length=8).vocab_size
