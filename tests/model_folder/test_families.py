import dataclasses
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from safetensors.torch import load_file

from maskwright.errors import ConfigError
from maskwright.model.presets import PRESETS, Preset
from maskwright.model_folder.families import (
    FAMILIES,
    find_classifier,
    native_family,
    training_fields,
)
from maskwright.model_folder.folder import load_model, save_model
from maskwright.model_folder.native.own import OWN
from tests.model.helpers import tiny_config, tiny_model
from tests.model_folder.helpers import tiny_tokenizer
from tests.model_folder.toy_family import TOY

DEBERTA = {
    "relative_attention": True, "position_biased_input": False, "pos_att_type": "p2c|c2p",
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 256,
}  # fmt: skip
ESM = {"vocab_size": 33, "pad_token_id": 1, "position_embedding_type": "rotary"}

# Fields, the nearest class, and what it has not.
OTHERS = [
    ({"first_attention_norm": True}, "ModernBertForMaskedLM", "first_attention_norm = True"),
    ({"first_attention_norm": True, "qk_norm": True}, "ModernBertForMaskedLM",
     "first_attention_norm = True; no qk_norm = True"),
    ({"preset": "roberta", "type_vocab_size": 0, "hidden_act": "relu"}, "RobertaForMaskedLM",
     "type_vocab_size = 0"),
    ({"preset": "ultrabert", "prediction_head_size": 0}, "UltrabertForMaskedLM",
     "prediction_head_size = 0"),
    ({"preset": "gte", "mlp_output_bias": False}, "GteForMaskedLM", "mlp_output_bias = False"),
    ({"preset": "eurobert", "global_attn_every_n_layers": 2}, "EuroBertForMaskedLM",
     "sliding_attention in layer_types"),
    ({"preset": "eurobert", "decoder_bias": True}, "EuroBertForMaskedLM", "decoder_bias = True"),
    ({"preset": "neobert", "intermediate_size": 50}, "NeoBERTLMHead", "intermediate_size = 50"),
    ({"preset": "deberta-v2", "embedding_size": 8}, "DebertaV2ForMaskedLM", "embedding_size = 8"),
    ({"preset": "bert", "head_act": "relu"}, "BertForMaskedLM", "head_act = relu"),
]  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_native(preset: str) -> None:
    family, reason = native_family(tiny_config(preset=preset))
    assert family is FAMILIES[preset]
    assert reason == ""


def test_every_family_but_ours_has_a_preset() -> None:
    assert {family.preset for family in FAMILIES.values()} == {*PRESETS, None}
    assert {*get_args(Preset)} == {*PRESETS}


def test_of_several_families_the_one_that_is_asked_for_is_taken() -> None:
    """Without types and with GELU, BERT is DistilBERT; with any, and GELU in the head, RoBERTa."""
    both = tiny_config(preset="roberta", norm_eps=1e-12)
    assert native_family(both)[0] is FAMILIES["roberta"]
    for model_type in ("bert", "xlm-roberta", "camembert"):
        asked = dataclasses.replace(both, model_type=model_type)
        assert native_family(asked)[0] is FAMILIES[model_type]
    for model_type in (None, "t5", "modernbert"):
        asked = dataclasses.replace(both, model_type=model_type)
        assert native_family(asked)[0] is FAMILIES["bert"]
    assert native_family(tiny_config(preset="bert", type_vocab_size=0))[0] is FAMILIES["distilbert"]


@pytest.mark.parametrize(("fields", "nearest", "lacking"), OTHERS)
def test_others_are_not_and_the_reason_names_the_field(
    fields: dict[str, Any], nearest: str, lacking: str
) -> None:
    config = tiny_config(**fields)
    reason = f"{nearest}, the nearest class of transformers, has no {lacking}"
    assert native_family(config) == (None, reason)
    config = dataclasses.replace(config, model_type=None, mask_token_id=4)
    assert OWN.read_config(OWN.write_config(config)) == config  # our own names hold everything


def test_what_has_no_effect_costs_no_native_home() -> None:
    for fields in (
        {"preset": "bert", "local_attention": 7},
        {"preset": "eurobert", "local_attention": 7, "local_rope_theta": 3.0},
        {"preset": "modernbert", "attention_backend": "reference"},
        {"preset": "modernbert", "hidden_dropout": 0.3, "init_output": "zero"},
    ):
        assert native_family(tiny_config(**fields))[0] is not None


def test_training_fields_without_a_word_are_kept_aside() -> None:
    config = tiny_config(
        hidden_dropout=0.3, mlp_dropout=0.2, init_output="zero", init_embedding_norm=0.1
    )
    assert training_fields(config, FAMILIES["modernbert"]) == {
        "hidden_dropout": 0.3,
        "init_output": "zero",
        "init_embedding_norm": 0.1,
    }
    assert training_fields(tiny_config(preset="bert"), FAMILIES["bert"]) == {}


def test_older_words_of_ours_are_understood() -> None:
    config = tiny_config(qk_norm=True, mlp_bias=True)
    raw = OWN.write_config(config)
    for name in ("prediction_head_size", "mlp_output_bias"):
        del raw[name]
    assert OWN.read_config(raw) == dataclasses.replace(config, model_type=None)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("bert", {"is_decoder": True}, "is_decoder = True is not supported for model_type bert"),
        ("bert", {"hidden_act": "mish"}, "hidden_act = mish must be gelu|"),
        ("bert", {"num_hidden_layers": 10**12}, "num_hidden_layers = 1000000000000 must be at"),
        ("bert", {"hidden_size": "wide"}, "hidden_size = wide must be int"),
        ("bert", {"type_vocab_size": 0}, "type_vocab_size = 0 must be at least 1 in bert"),
        ("modernbert", {"rope_parameters": {"rope_theta": 1.0}}, "rope_parameters = "),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters.full_attention.rope_type = yarn is not supported",
        ),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types = 1 must name one type"),
        ("modernbert", {"layer_types": ["linear"]}, "layer_types[0] = linear must be"),
        ("modernbert", {"global_attn_every_n_layers": "x"}, "global_attn_every_n_layers = x must"),
        ("eurobert", {"num_key_value_heads": 2}, "num_key_value_heads = 2 is not supported. Only"),
        ("eurobert", {"head_dim": 7}, "head_dim = 7 is not supported"),
        ("eurobert", {"rope_scaling": {"type": "linear"}}, "rope_scaling = "),
        ("eurobert", {"rope_parameters": 3}, "rope_parameters = 3 must hold rope_type"),
        ("maskwright", {}, "vocab_size = None must be int"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings = 2 must be more"),
        ("distilbert", {"dim": 7}, "num_attention_heads = 12 does not divide"),
        ("esm", {"vocab_size": 33, "pad_token_id": 1}, "position_embedding_type = absolute is not"),
        ("esm", {**ESM, "token_dropout": True}, "token_dropout = True is not supported for model"),
        ("deberta-v2", {}, "relative_attention = None is not supported for model_type deberta-v2"),
        ("deberta-v2", {**DEBERTA, "conv_kernel_size": 3}, "conv_kernel_size = 3 is not supported"),
        ("deberta-v2", {**DEBERTA, "pos_att_type": ["c2p"]}, "pos_att_type = ['c2p'] is not"),
        ("deberta-v2", {**DEBERTA, "embedding_size": 7}, "embedding_size = 7 must be equal to hid"),
        ("nomic_bert", {"n_embd": "wide"}, "n_embd = wide must be int"),
        ("nomic_bert", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction = 0.5 is not supported"),
        ("ultrabert", {"sliding_window": 0}, "sliding_window = 0 must be at least 1"),
        ("ultrabert", {"attention_windows": [4, 8]}, "attention_windows = (4, 8) must be equal in"),
        ("ultrabert", {"rope_theta": [1.0]}, "rope_theta = 1 must have a value for each of 32"),
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
    ultra = FAMILIES["ultrabert"].read_config(
        {"num_hidden_layers": 3, "attention_windows": [5, 0, 5], "rope_theta": [7.0, 9.0, 7.0]}
    )
    assert [ultra.window(kind) for kind in ultra.layer_types] == [5, None, 5]
    assert [ultra.theta(kind) for kind in ultra.layer_types] == [7.0, 9.0, 7.0]
    deberta = FAMILIES["deberta-v2"].read_config(DEBERTA)  # as published
    assert (deberta.position_buckets, deberta.norm_eps) == (256, 1e-7)
    # The published configuration: 28 layers with an MLP of 2,048, on up to 4,096 tokens.
    neo = FAMILIES["neobert"].read_config({"intermediate_size": 3072, "max_length": 4096})
    assert (neo.num_hidden_layers, neo.intermediate_size) == (28, 2048)
    assert neo.max_position_embeddings == 4096
    euro = FAMILIES["eurobert"].read_config({"rope_theta": 250_000})
    assert (euro.rope_theta, euro.tie_word_embeddings, euro.hidden_act) == (250_000, False, "silu")


NOMIC = {  # in the fields of published folders
    "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_inner": 4096, "layer_norm_epsilon": 1e-6,
    "rotary_emb_base": 5_000, "max_trained_positions": 512, "resid_pdrop": 0.1, "attn_pdrop": 0.2,
    "activation_function": "swiglu", "rotary_emb_fraction": 1.0, "rotary_scaling_factor": None,
    "causal": False, "prenorm": False, "n_positions": 8192,
}  # fmt: skip


def test_fields_of_the_class_of_published_nomic_models_are_read() -> None:
    nomic = FAMILIES["nomic_bert"].read_config(NOMIC)
    assert (nomic.hidden_size, nomic.num_attention_heads) == (1024, 16)
    assert (nomic.num_hidden_layers, nomic.intermediate_size) == (24, 4096)
    assert (nomic.norm_eps, nomic.rope_theta, nomic.max_position_embeddings) == (1e-6, 5_000, 512)
    assert (nomic.hidden_dropout, nomic.attention_dropout) == (0.1, 0.2)
    # Those of transformers' class come first, as in the folders that have both.
    both = {"hidden_size": 512, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}
    nomic = FAMILIES["nomic_bert"].read_config({**NOMIC, **both})
    assert (nomic.hidden_size, nomic.rope_theta, nomic.num_hidden_layers) == (512, 7.0, 24)


def test_a_folder_names_the_code_of_a_class_that_transformers_lacks(tmp_path: Path) -> None:
    model = tiny_model(preset="neobert")
    save_model(tmp_path / "model", model, tiny_tokenizer(tmp_path / "tokenizer"))
    raw = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert raw["auto_map"]["AutoModelForMaskedLM"] == "chandar-lab/NeoBERT--model.NeoBERTLMHead"
    card = (tmp_path / "model/README.md").read_text(encoding="utf-8")
    assert "trust_remote_code=True" in card
    assert "`chandar-lab/NeoBERT`" in card
    # Only a model that names it is saved as one: loading the folder runs that code.
    unnamed = dataclasses.replace(model.config, model_type="eurobert")
    assert native_family(unnamed)[0] is None


def test_a_family_is_one_file_and_one_line_of_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "toy", TOY)
    model = tiny_model(preset="bert")
    model.config = dataclasses.replace(model.config, model_type="toy")
    save_model(tmp_path / "model", model, tiny_tokenizer(tmp_path / "tokenizer"))
    raw = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert (raw["model_type"], raw["architectures"]) == ("toy", ["ToyForMaskedLM"])
    assert "toy.layers.0.norm1.weight" in load_file(tmp_path / "model/model.safetensors")
    assert "`ToyForMaskedLM`" in (tmp_path / "model/README.md").read_text(encoding="utf-8")
    back, _ = load_model(tmp_path / "model")
    assert back.config.model_type == "toy"
    for (name, ours), theirs in zip(model.named_parameters(), back.parameters(), strict=True):
        assert ours.equal(theirs), name
    assert find_classifier(["ToyForTokenClassification"]) is not None


class _Noted(dict[str, Any]):
    """A configuration that notes which fields are read."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.read = set[str]()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


_OWN = OWN.write_config(tiny_config())
_BASES: dict[str, Mapping[str, Any]] = {"esm": ESM, "deberta-v2": DEBERTA, "maskwright": _OWN}


@pytest.mark.parametrize("name", [*FAMILIES])
@pytest.mark.parametrize("stated", [0, "", [], {}, math.nan, -1])
def test_a_stated_value_stays_or_is_refused(name: str, stated: object) -> None:
    """No 0 and no empty value is replaced by a default, whichever field states it."""
    family = FAMILIES[name]
    base = _Noted(_BASES.get(name, {}))
    absent = family.read_config(base)
    defaults = {entry.theirs: entry.default for entry in family.fields}
    defaults |= {older: defaults.get(new) for new, older in family.older.items()}
    defaults |= {
        "ultrabert": {"eos_token_id": 0},
        "deberta-v2": {"max_relative_positions": -1},
    }.get(name, {})
    # 0 is equal to False; an empty value says as little as no list of classes or parameters.
    equal = {key for key, accepted in family.accepts.items() if stated in accepted}
    equal |= {"architectures"} | ({"rope_parameters"} if stated == {} else set[str]())
    for field in sorted(base.read - equal):
        with suppress(ConfigError):
            found = family.read_config({**base, field: stated})
            own = base.get(field, defaults.get(field))
            assert found != absent or own == stated, field


@pytest.mark.parametrize("theta", [0, 0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        *((name, "rope_theta") for name in ("eurobert", "nomic_bert", "gte", "jina_embeddings_v3")),
        *(("modernbert", f"{reach}_rope_theta") for reach in ("global", "local")),
        *((name, "rope_parameters") for name in ("eurobert", "nomic_bert")),
        *(("nomic_bert", "rotary_emb_base"), ("esm", "rope_theta")),
    ],
)
def test_no_rotary_base_is_replaced(name: str, field: str, theta: float) -> None:
    value = {"rope_type": "default", "rope_theta": theta} if field == "rope_parameters" else theta
    with pytest.raises(ConfigError, match=r"rope_theta = \S+ must be"):
        FAMILIES[name].read_config({**_BASES.get(name, {}), field: value})
