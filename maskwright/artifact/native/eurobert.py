"""EuroBertForMaskedLM. Boizard et al., "EuroBERT: Scaling Multilingual Encoders", 2025."""

from collections.abc import Mapping
from typing import Any

from maskwright.artifact.native.family import Family, Field, RawConfig, read_rope_theta, same
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig

FIELDS = (
    same("vocab_size", 128_256),
    same("hidden_size", 768),
    same("num_hidden_layers", 12),
    same("num_attention_heads", 12),
    same("intermediate_size", 3072),
    same("max_position_embeddings", 8192),
    same("hidden_act", "silu"),
    same("attention_bias", False),
    same("attention_dropout", 0.0),
    same("initializer_range", 0.02),
    same("tie_word_embeddings", False),
    same("pad_token_id", 128_001),
    same("mask_token_id", 128_002),
    Field("rms_norm_eps", ("norm_eps",), 1e-5),
    Field("mlp_bias", ("mlp_bias", "decoder_bias"), False),
    Field("bos_token_id", ("cls_token_id",), 128_000),
)
FIXED = {
    "gated_mlp": True, "norm": "rmsnorm", "norm_position": "pre", "norm_bias": False,
    "positions": "rotary", "local_rope_theta": 10_000.0, "embedding_norm": False,
    "first_attention_norm": True, "type_vocab_size": 0, "qk_norm": False,
    "local_attention": 128, "head_transform": False, "head_act": "gelu", "head_bias": False,
}  # fmt: skip
LAYER = "model.layers.*"
TENSORS = {
    "encoder.embeddings.word": "model.embed_tokens",
    "encoder.blocks.*.attention_norm": f"{LAYER}.input_layernorm",
    "encoder.blocks.*.attention.qkv": (
        f"{LAYER}.self_attn.q_proj",
        f"{LAYER}.self_attn.k_proj",
        f"{LAYER}.self_attn.v_proj",
    ),
    "encoder.blocks.*.attention.output": f"{LAYER}.self_attn.o_proj",
    "encoder.blocks.*.mlp_norm": f"{LAYER}.post_attention_layernorm",
    "encoder.blocks.*.mlp.input": (f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj"),
    "encoder.blocks.*.mlp.output": f"{LAYER}.mlp.down_proj",
    "encoder.final_norm": "model.norm",
    "head.decoder": "lm_head",
}


def _tensors(config: EncoderConfig) -> Mapping[str, str | tuple[str, ...]]:
    return TENSORS


def _write_more(config: EncoderConfig) -> dict[str, Any]:
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "num_key_value_heads": config.num_attention_heads,
        "head_dim": config.head_size,
        "eos_token_id": config.sep_token_id,
    }


def _read_more(raw: RawConfig, values: dict[str, Any]) -> dict[str, Any]:
    heads, size = values["num_attention_heads"], values["hidden_size"]
    for name, expected in (("num_key_value_heads", heads), ("head_dim", size // max(heads, 1))):
        if raw.get(name) not in (None, expected):
            raise ConfigError(name, raw[name], "is not supported", f"Only {expected} is.")
    sep = raw.get("eos_token_id")
    return {
        "layer_types": ("full_attention",) * values["num_hidden_layers"],
        "rope_theta": read_rope_theta(
            raw.get("rope_parameters"), "rope_parameters", raw.get("rope_theta") or 10_000.0
        ),
        "sep_token_id": sep if isinstance(sep, int) else None,
    }


EUROBERT = Family(
    model_type="eurobert",
    architecture="EuroBertForMaskedLM",
    fields=FIELDS,
    fixed=FIXED,
    tensors=_tensors,
    accepts={"rope_scaling": (None,), "is_decoder": (False,)},
    ignored=("lm_head.weight",),
    write_more=_write_more,
    read_more=_read_more,
)
