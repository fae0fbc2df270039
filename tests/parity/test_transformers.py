"""The same numbers as the published classes: from their weights, and from ours in their names."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from maskwright.model.presets import PRESETS
from maskwright.model_folder.families import FAMILIES, list_native, native_family
from maskwright.model_folder.folder import load_model, save_model
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import tiny_tokenizer, write_tokenizer
from tests.twins import (
    PACKED,
    ROW,
    TOLERANCE,
    TWINS,
    build_twin,
    largest_difference,
    list_twins,
    our_logits,
)

INSTALLED = list(list_twins())
BIASES = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "head_bias"), True)
# What the presets alone would leave untried.
VARIANTS: dict[str, dict[str, Any]] = {
    **{preset: {"preset": preset} for preset in PRESETS},
    "bert untied": {"preset": "bert", "tie_word_embeddings": False, "hidden_act": "relu"},
    "bert types": {"preset": "bert", "type_vocab_size": 3, "norm_eps": 1e-5, "hidden_act": "silu"},
    "modernbert": {"preset": "modernbert", "local_attention": 6},
    "modernbert odd window": {"preset": "modernbert", "local_attention": 5, "rope_theta": 77.0},
    "modernbert biases": {
        "preset": "modernbert", "local_attention": 4, "local_rope_theta": 50.0,
        "global_attn_every_n_layers": 2, **BIASES, "decoder_bias": False,
    },
    "modernbert untied": {
        "preset": "modernbert", "tie_word_embeddings": False, "hidden_act": "gelu_pytorch_tanh",
        "head_act": "relu", "global_attn_every_n_layers": 1,
    },
    "eurobert tied biases": {
        "preset": "eurobert", "tie_word_embeddings": True, "attention_bias": True,
        "mlp_bias": True, "rope_theta": 250.0, "hidden_act": "relu2",
    },
    "bert spelled out of modernbert": {
        "preset": "modernbert", "norm_position": "post", "positions": "learned",
        "gated_mlp": False, **BIASES, "type_vocab_size": 1, "global_attn_every_n_layers": 1,
    },
    "roberta untied": {"preset": "roberta", "tie_word_embeddings": False, "hidden_act": "relu"},
    "esm with an embedding norm": {"preset": "esm", "embedding_norm": True, "rope_theta": 99.0},
    "ultrabert odd window": {
        "preset": "ultrabert", "local_attention": 7, "prediction_head_size": 20,
        "tie_word_embeddings": True, "mlp_bias": True,
    },
    "deberta-v2 with few buckets": {
        "preset": "deberta-v2", "position_buckets": 6, "type_vocab_size": 2,
        "tie_word_embeddings": False, "hidden_act": "relu",
    },
    "electra with narrow embeddings": {"preset": "electra", "embedding_size": 24},
    "electra with wide embeddings": {
        "preset": "electra", "embedding_size": 40, "tie_word_embeddings": False,
        "hidden_act": "relu",
    },
}  # fmt: skip


def test_every_family_has_a_twin() -> None:
    assert {twin.model_type for twin in TWINS.values()} == {
        family.model_type for family in list_native()
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_transformers_loads_our_folder_and_we_load_theirs_again(name: str, tmp_path: Path) -> None:
    ours, tokenizer = tiny_model(**VARIANTS[name]), tiny_tokenizer(tmp_path / "tokenizer")
    family, _ = native_family(ours.config)
    assert family is not None
    if family.model_type not in {TWINS[twin].model_type for twin in INSTALLED}:
        pytest.skip(f"the installed transformers has no {family.architecture}")
    save_model(tmp_path / "ours", ours, tokenizer)
    theirs, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(theirs).__name__ == family.architecture
    assert largest_difference(ours, theirs) <= TOLERANCE
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs", max_length=ROW)
    for folder in ("ours", "theirs"):
        back, _ = load_model(tmp_path / folder)
        assert torch.equal(our_logits(back, PACKED), our_logits(ours, PACKED))
        assert back.config.model_type == family.model_type


@pytest.mark.parametrize("name", INSTALLED)
def test_we_load_a_folder_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = build_twin(name)
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    ours, _ = load_model(tmp_path)
    assert largest_difference(ours, theirs) <= TOLERANCE
    assert native_family(ours.config)[0] is FAMILIES[TWINS[name].model_type]


@pytest.mark.parametrize("name", INSTALLED)
def test_silent_files_mean_what_transformers_takes_them_to_mean(name: str) -> None:
    """A field that a file leaves out has the default of their class."""
    from transformers import AutoConfig

    model_type, fields = TWINS[name]
    needed = {"vocab_size": 64, "pad_token_id": 0} if model_type == "esm" else {}
    needed |= {**fields, **({"num_hidden_layers": 4} if "layer_types" in fields else {})}
    full = AutoConfig.for_model(model_type, **needed).to_dict()
    family = FAMILIES[model_type]
    assert family.read_config(needed) == family.read_config(full)


def with_types(name: str) -> bool:
    fields = {field.theirs for field in FAMILIES[TWINS[name].model_type].fields}
    return "type_vocab_size" in fields and TWINS[name].fields.get("type_vocab_size", 2) > 1


@pytest.mark.parametrize("name", [name for name in INSTALLED if with_types(name)])
def test_token_types_are_theirs(name: str, tmp_path: Path) -> None:
    theirs = build_twin(name, type_vocab_size=2)
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    ours, _ = load_model(tmp_path)
    types = (torch.arange(ROW) > 4).long()
    assert largest_difference(ours, theirs, types) <= TOLERANCE
    assert (our_logits(ours, types=types) - our_logits(ours)).abs().max() > 1e-2


def test_weights_in_parts_and_in_half_precision_are_read(tmp_path: Path) -> None:
    theirs = build_twin("modernbert").bfloat16()
    theirs.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    write_tokenizer(tmp_path)
    ours, _ = load_model(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    again = AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert largest_difference(ours, again) <= TOLERANCE
