"""ModernBertForMaskedLM. Warner et al., "Smarter, Better, Faster, Longer", 2024.

Its class uses ``attention_dropout`` once more after the output projection, as our
``hidden_dropout`` does; published models have none.
"""

from collections.abc import Mapping
from typing import Any

from maskwright.artifact.native.family import (
    Family,
    Field,
    RawConfig,
    read_rope_theta,
    read_value,
    same,
)
from maskwright.config import convert
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig

FIELDS = (
    same("vocab_size", 50_368),
    same("hidden_size", 768),
    same("num_hidden_layers", 22),
    same("num_attention_heads", 12),
    same("intermediate_size", 1152),
    same("max_position_embeddings", 8192),
    same("norm_eps", 1e-5),
    same("norm_bias", False),
    same("attention_bias", False),
    same("mlp_bias", False),
    same("decoder_bias", True),
    same("local_attention", 128),
    same("embedding_dropout", 0.0),
    same("attention_dropout", 0.0),
    same("mlp_dropout", 0.0),
    same("initializer_range", 0.02),
    same("initializer_cutoff_factor", 2.0),
    same("tie_word_embeddings", True),
    same("pad_token_id", 50_283),
    same("cls_token_id", 50_281),
    same("sep_token_id", 50_282),
    Field("hidden_activation", ("hidden_act",), "gelu"),
    Field("classifier_activation", ("head_act",), "gelu"),
    Field("classifier_bias", ("head_bias",), False),
)
FIXED = {
    "gated_mlp": True, "norm": "layernorm", "norm_position": "pre", "positions": "rotary",
    "embedding_norm": True, "first_attention_norm": False, "type_vocab_size": 0,
    "qk_norm": False, "head_transform": True, "init_output": "scaled",
}  # fmt: skip
LAYER = "model.layers.*"
TENSORS = {
    "encoder.embeddings.word": "model.embeddings.tok_embeddings",
    "encoder.embeddings.norm": "model.embeddings.norm",
    "encoder.blocks.*.attention_norm": f"{LAYER}.attn_norm",
    "encoder.blocks.*.attention.qkv": f"{LAYER}.attn.Wqkv",
    "encoder.blocks.*.attention.output": f"{LAYER}.attn.Wo",
    "encoder.blocks.*.mlp_norm": f"{LAYER}.mlp_norm",
    "encoder.blocks.*.mlp.input": f"{LAYER}.mlp.Wi",
    "encoder.blocks.*.mlp.output": f"{LAYER}.mlp.Wo",
    "encoder.final_norm": "model.final_norm",
    "head.transform.dense": "head.dense",
    "head.transform.norm": "head.norm",
    "head.decoder": "decoder",
}


def _tensors(config: EncoderConfig) -> Mapping[str, str | tuple[str, ...]]:
    return TENSORS


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _write_more(config: EncoderConfig) -> dict[str, Any]:
    return {
        "layer_types": list(config.layer_types),
        "rope_parameters": {
            "full_attention": _rope(config.rope_theta),
            "sliding_attention": _rope(config.local_rope_theta),
        },
        "bos_token_id": config.cls_token_id,
        "eos_token_id": config.sep_token_id,
    }


def _read_more(raw: RawConfig, values: dict[str, Any]) -> dict[str, Any]:
    types = raw.get("layer_types")
    if types is None:  # as the files of 2024 say it
        every = convert(
            raw.get("global_attn_every_n_layers") or 3, int, "global_attn_every_n_layers"
        )
        layers = range(values["num_hidden_layers"])
        types = ["sliding_attention" if layer % every else "full_attention" for layer in layers]
    rope = raw.get("rope_parameters") or {}
    if not isinstance(rope, Mapping) or set(rope) - {"full_attention", "sliding_attention"}:
        raise ConfigError("rope_parameters", rope, "must hold full_attention and sliding_attention")
    thetas = {
        kind: read_rope_theta(rope.get(kind), f"rope_parameters.{kind}", raw.get(older) or default)
        for kind, older, default in (
            ("full_attention", "global_rope_theta", 160_000.0),
            ("sliding_attention", "local_rope_theta", 10_000.0),
        )
    }
    return {
        "layer_types": read_value(types, "layer_types", "layer_types"),
        "rope_theta": thetas["full_attention"],
        "local_rope_theta": thetas["sliding_attention"],
    }


MODERNBERT = Family(
    model_type="modernbert",
    architecture="ModernBertForMaskedLM",
    fields=FIELDS,
    fixed=FIXED,
    tensors=_tensors,
    accepts={"position_embedding_type": ("absolute", "rope"), "rope_scaling": (None,)},
    ignored=("decoder.weight",),
    write_more=_write_more,
    read_more=_read_more,
)
