import dataclasses

import pytest

from maskwright.artifact.families import FAMILIES, native_family, training_fields
from maskwright.artifact.native.own import OWN
from maskwright.errors import ConfigError
from tests.model.helpers import tiny_config

OTHERS = {
    "a norm before the first attention": (
        {"first_attention_norm": True},
        "ModernBertForMaskedLM, the nearest class of transformers, has no "
        "first_attention_norm = True",
    ),
    "two fields": (
        {"first_attention_norm": True, "qk_norm": True},
        "ModernBertForMaskedLM, the nearest class of transformers, has no "
        "first_attention_norm = True; no qk_norm = True",
    ),
    "bert without token types": (
        {"preset": "bert", "type_vocab_size": 0},
        "BertForMaskedLM, the nearest class of transformers, has no type_vocab_size = 0",
    ),
    "eurobert with a window": (
        {"preset": "eurobert", "global_attn_every_n_layers": 2},
        "EuroBertForMaskedLM, the nearest class of transformers, has no sliding_attention in "
        "layer_types",
    ),
    "eurobert with another bias": (
        {"preset": "eurobert", "decoder_bias": True},
        "EuroBertForMaskedLM, the nearest class of transformers, has no decoder_bias = True",
    ),
    "bert with another head activation": (
        {"preset": "bert", "head_act": "relu"},
        "BertForMaskedLM, the nearest class of transformers, has no head_act = relu",
    ),
}


@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert"])
def test_presets_are_native(preset: str) -> None:
    family, reason = native_family(tiny_config(preset=preset))
    assert family is FAMILIES[preset]
    assert reason == ""


@pytest.mark.parametrize("case", OTHERS)
def test_others_are_not_and_the_reason_names_the_field(case: str) -> None:
    fields, expected = OTHERS[case]
    assert native_family(tiny_config(**fields)) == (None, expected)


def test_what_has_no_effect_costs_no_native_home() -> None:
    for fields in (
        {"preset": "bert", "local_attention": 7},
        {"preset": "eurobert", "local_attention": 7, "local_rope_theta": 3.0},
        {"preset": "modernbert", "attention_backend": "reference"},
        {"preset": "modernbert", "hidden_dropout": 0.3, "init_output": "zero"},
    ):
        assert native_family(tiny_config(**fields))[0] is not None


def test_training_fields_without_a_word_are_kept_aside() -> None:
    config = tiny_config(hidden_dropout=0.3, mlp_dropout=0.2, init_output="zero")
    assert training_fields(config, FAMILIES["modernbert"]) == {
        "hidden_dropout": 0.3,
        "init_output": "zero",
    }
    assert training_fields(tiny_config(preset="bert"), FAMILIES["bert"]) == {}


@pytest.mark.parametrize("case", OTHERS)
def test_our_own_words_hold_everything(case: str) -> None:
    config = tiny_config(**OTHERS[case][0])
    assert OWN.read_config(OWN.write_config(config)) == config
    without_ids = dataclasses.replace(config, mask_token_id=4)
    assert OWN.read_config(OWN.write_config(without_ids)) == without_ids


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("bert", {"is_decoder": True}, "is_decoder = True is not supported for model_type bert"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = relative"),
        ("bert", {"hidden_act": "mish"}, "hidden_act = mish must be gelu|"),
        ("bert", {"num_hidden_layers": 10**12}, "num_hidden_layers = 1000000000000 must be at"),
        ("bert", {"hidden_size": "wide"}, "hidden_size = wide must be int"),
        ("modernbert", {"rope_parameters": {"rope_theta": 1.0}}, "rope_parameters = "),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters.full_attention.rope_type = yarn is not supported",
        ),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types = 1 must name one type"),
        ("modernbert", {"layer_types": ["linear"]}, "layer_types[0] = linear must be"),
        ("modernbert", {"global_attn_every_n_layers": "x"}, "global_attn_every_n_layers = x must"),
        (
            "eurobert",
            {"num_key_value_heads": 2},
            "num_key_value_heads = 2 is not supported. Only 12",
        ),
        ("eurobert", {"head_dim": 7}, "head_dim = 7 is not supported"),
        ("eurobert", {"rope_scaling": {"type": "linear"}}, "rope_scaling = "),
        ("eurobert", {"rope_parameters": 3}, "rope_parameters = 3 must hold rope_type"),
        ("maskwright", {}, "vocab_size = None must be int"),
    ],
)
def test_what_we_cannot_compute_is_refused_by_field(
    family: str, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        FAMILIES[family].read_config(fields)
    assert str(caught.value).startswith(message)


def test_absent_fields_have_the_defaults_of_transformers() -> None:
    bert = FAMILIES["bert"].read_config({})
    assert (bert.hidden_size, bert.type_vocab_size, bert.embedding_dropout) == (768, 2, 0.1)
    modern = FAMILIES["modernbert"].read_config({"num_hidden_layers": 5})
    assert [modern.window(kind) for kind in modern.layer_types] == [None, 64, 64, None, 64]
    older = {"global_attn_every_n_layers": 2, "global_rope_theta": 5.0, "local_rope_theta": 6.0}
    modern = FAMILIES["modernbert"].read_config({**older, "num_hidden_layers": 2})
    assert [modern.theta(kind) for kind in modern.layer_types] == [5.0, 6.0]
    euro = FAMILIES["eurobert"].read_config({"rope_theta": 250_000})
    assert (euro.rope_theta, euro.tie_word_embeddings, euro.hidden_act) == (250_000, False, "silu")
