"""Post-norm encoders with BERT's fields and rotary positions, and ESM, which is pre-norm.

JinaEmbeddingsV3, XLM-RoBERTa with rotary positions: Sturua et al., 2024. NomicBert: Nussbaum et
al., "Nomic Embed", 2024. Gte: Zhang et al., "mGTE: Generalized Long-Context Text Representation",
2024. ESM: Lin et al., "Evolutionary-scale prediction", 2022, a protein model with plain MLPs and
all biases; ``token_dropout``, a scaling of embeddings by the share of masked tokens, is not
supported.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.model.layers import rotary_frequencies
from maskwright.model_folder.native.bert_like import (
    ENCODER_ONLY,
    GAMMA_BETA,
    LARGE,
    NEEDS_TYPES,
    bert_blocks,
    bert_embeddings,
    bert_fields,
    bert_head,
    roberta_head,
)
from maskwright.model_folder.native.family import (
    ConfigValues,
    Family,
    Field,
    Names,
    RawConfig,
    find_stated,
    name_blocks,
    read_value,
    same,
)

_QKV = tuple(f"self_attn.{one}_proj" for one in "qkv")


def llama_blocks(
    layer: str,
    *,
    attention_norm: str = "post_attention_layernorm",
    mlp_norm: str = "post_mlp_layernorm",
    mlp_input: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj"),
    mlp_output: str = "mlp.down_proj",
) -> Names:
    """Return Llama's names of blocks, except those of the norms, which are arguments."""
    attention = (_QKV, "self_attn.o_proj", attention_norm)
    return name_blocks(layer, *attention, mlp_input, mlp_output, mlp_norm)


def write_rope(theta: float) -> ConfigValues:
    """Return an entry of ``rope_parameters``."""
    return {"rope_type": "default", "rope_theta": theta}


def write_one_rope(config: EncoderConfig) -> ConfigValues:
    """Return ``rope_parameters`` of a class with the same rotary base in all layers."""
    return {"rope_parameters": write_rope(config.rope_theta)}


def read_one_rope(default: float) -> Callable[[RawConfig, ConfigValues], ConfigValues]:
    """Return the reader of `write_one_rope`'s fields, with a default base."""

    def read(raw: RawConfig, values: ConfigValues) -> ConfigValues:
        check_heads(raw, values)
        older = find_stated(raw, default, "rope_theta", "rotary_emb_base")
        return {"rope_theta": read_rope_theta(raw.get("rope_parameters"), "rope_parameters", older)}

    return read


def read_rope_theta(parameters: Any, name: str, default: Any) -> float:
    """Return the base of the frequencies in an entry of ``rope_parameters``; raise ConfigError
    if it is a scaled or partial variant.
    """
    entries = {} if parameters is None else parameters
    if not isinstance(entries, Mapping):
        raise ConfigError(name, entries, "must hold rope_type and rope_theta")
    for key, value in entries.items():
        if key != "rope_theta" and (key, value) != ("rope_type", "default"):
            raise ConfigError(f"{name}.{key}", value, "is not supported")
    theta = find_stated(entries, default, "rope_theta")
    return read_value(theta, "rope_theta", f"{name}.rope_theta")


def read_two_ropes(raw: RawConfig, full: Any, sliding: Any) -> ConfigValues:
    """Return the rotary bases of global and local layers, by default `full` and `sliding`."""
    rope = find_stated(raw, {}, "rope_parameters")
    if not isinstance(rope, Mapping) or set(rope) - {"full_attention", "sliding_attention"}:
        raise ConfigError("rope_parameters", rope, "must hold full_attention and sliding_attention")

    def read(kind: str, default: Any) -> float:
        return read_rope_theta(rope.get(kind), f"rope_parameters.{kind}", default)

    return {
        "rope_theta": read("full_attention", full),
        "local_rope_theta": read("sliding_attention", sliding),
    }


def write_two_ropes(config: EncoderConfig) -> ConfigValues:
    """Return ``layer_types`` and the rotary positions of each type."""
    return {
        "layer_types": list(config.layer_types),
        "rope_parameters": {
            "full_attention": write_rope(config.rope_theta),
            "sliding_attention": write_rope(config.local_rope_theta),
        },
    }


def check_heads(raw: RawConfig, values: ConfigValues) -> None:
    """Raise ConfigError unless heads split the width equally, without shared keys and values."""
    heads, size = values["num_attention_heads"], values["hidden_size"]
    for name, expected in (("num_key_value_heads", heads), ("head_dim", size // max(heads, 1))):
        if raw.get(name) not in (None, expected):
            raise ConfigError(name, raw[name], "is not supported", f"Only {expected} is.")


# Names of the authors' own classes.
_OLDER_NAMES = {
    **GAMMA_BETA,
    r"\bemb_ln": "embeddings.LayerNorm",
    r"encoder\.layers": "layers",
    r"(mixer|attn)\.out_proj": "self_attn.o_proj",
    r"norm1\b": "post_attention_layernorm",
    r"norm2\b": "post_mlp_layernorm",
}
JINA_EMBEDDINGS_V3 = Family(
    model_type="jina_embeddings_v3",
    architecture="JinaEmbeddingsV3ForMaskedLM",
    preset="jina_embeddings_v3",
    since=lambda config: "5.4",
    fields=(
        *bert_fields(
            norm_eps=1e-5, vocab_size=250_002, max_position_embeddings=8194, pad_token_id=1, **LARGE
        ),
        *same(type_vocab_size=1, hidden_act="gelu"),
        Field("bos_token_id", ("cls_token_id",), 0),
        Field("eos_token_id", ("sep_token_id",), 2),
    ),
    tensors={
        **bert_embeddings("roberta"),
        **llama_blocks("roberta.layers.*", mlp_input=("mlp.fc1",), mlp_output="mlp.fc2"),
        **roberta_head(),
    },
    accepts={"rope_scaling": (None,)},
    at_least=NEEDS_TYPES,
    tied_bias="lm_head.bias",
    renamed=_OLDER_NAMES,
    fused={"mixer.Wqkv": _QKV},
    ignored=("roberta.pooler.*", "*.inv_freq"),
    write_more=write_one_rope,
    read_more=read_one_rope(20_000.0),
)
# Published folders have fields of the authors' own class, which can compute more. Differences that
# also change the tensors are noticed there.
_OLDER = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "max_trained_positions",
    "layer_norm_eps": "layer_norm_epsilon", "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
}  # fmt: skip
_COMPUTED = {
    "rope_scaling": (None,), "rotary_scaling_factor": (None,), "rotary_emb_scale_base": (None,),
    "rotary_emb_fraction": (1.0,), "rotary_emb_interleaved": (False,), "prenorm": (False,),
    "causal": (False,), "activation_function": ("swiglu",),
}  # fmt: skip
NOMIC_BERT = Family(
    model_type="nomic_bert",
    architecture="NomicBertForMaskedLM",
    preset="nomic_bert",
    since=lambda config: "5.5",
    fields=(
        *bert_fields(dropout=(0.0, 0.0), vocab_size=30_528, max_position_embeddings=2048),
        *same(type_vocab_size=2),
        Field("hidden_act", ("hidden_act", "head_act"), "silu"),
    ),
    tensors={
        **bert_embeddings("nomic_bert"),
        **llama_blocks("nomic_bert.layers.*"),
        **bert_head(norm="layer_norm"),
    },
    accepts=_COMPUTED,
    older=_OLDER,
    at_least=NEEDS_TYPES,
    tied_bias="cls.predictions.bias",
    renamed={
        **_OLDER_NAMES,
        r"fc11\b": "up_proj",
        r"fc12\b": "gate_proj",
        r"fc2\b": "down_proj",
    },
    fused={"attn.Wqkv": _QKV},
    ignored=("nomic_bert.pooler.*", "*.inv_freq"),
    write_more=write_one_rope,
    read_more=read_one_rope(1_000.0),
)
GTE = Family(
    model_type="gte",
    architecture="GteForMaskedLM",
    preset="gte",
    since=lambda config: "5.18",
    fields=(
        *bert_fields(
            dropped=("hidden_dropout", "embedding_dropout", "mlp_dropout"),
            dropout=(0.1, 0.0),
            vocab_size=250_048,
            max_position_embeddings=8192,
            pad_token_id=1,
        ),
        *same(type_vocab_size=1, hidden_act="gelu"),
    ),
    tensors={**bert_embeddings("gte"), **llama_blocks("gte.layers.*"), **roberta_head()},
    accepts={"rope_scaling": (None,)},
    renamed={
        **GAMMA_BETA,
        r"encoder\.layer\b": "layers",
        r"attention\.o_proj": "self_attn.o_proj",
        r"attn_ln\b": "post_attention_layernorm",
        r"mlp_ln\b": "post_mlp_layernorm",
        r"lm_head\.norm\b": "lm_head.layer_norm",
    },
    fused={
        "attention.qkv_proj": _QKV,
        "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
    },
    ignored=("gte.pooler.*", "*.inv_freq"),
    write_more=write_one_rope,
    read_more=read_one_rope(160_000.0),
)


def _esm_constants(config: EncoderConfig) -> dict[str, Tensor]:
    """Return the buffers and the head for protein contacts, which its class always has."""
    maps = config.num_hidden_layers * config.num_attention_heads
    return {
        "esm.rotary_embeddings.inv_freq": rotary_frequencies(config.head_size, config.rope_theta),
        "esm.contact_head.regression.weight": torch.zeros(1, maps),
        "esm.contact_head.regression.bias": torch.zeros(1),
    }


def _find_esm_since(config: EncoderConfig) -> str:
    """Return the first version that reads `config`; older ones have a fixed rotary base."""
    return "4.44" if config.rope_theta == 10_000.0 else "5.17"


def _read_esm(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    check_heads(raw, values)
    positions = find_stated(raw, "absolute", "position_embedding_type")
    if positions != "rotary":
        rule = "is not supported for model_type esm"
        raise ConfigError("position_embedding_type", positions, rule, "Use rotary.")
    return {}


ESM = Family(
    model_type="esm",
    architecture="EsmForMaskedLM",
    preset="esm",
    since=_find_esm_since,
    fields=(
        *bert_fields(
            dropped=("hidden_dropout",),
            vocab_size=None,
            pad_token_id=None,
            max_position_embeddings=1026,
        ),
        *same(rope_theta=10_000.0, mask_token_id=None),
        Field("emb_layer_norm_before", ("embedding_norm",), False),
        Field("bos_token_id", ("cls_token_id",), None),
        Field("eos_token_id", ("sep_token_id",), 2),
    ),
    tensors={
        "encoder.embeddings.word": "esm.embeddings.word_embeddings",
        "encoder.embeddings.norm": "esm.embeddings.layer_norm",
        **bert_blocks(
            "esm.encoder.layer.*", attention_norm="attention.LayerNorm", mlp_norm="LayerNorm"
        ),
        "encoder.final_norm": "esm.encoder.emb_layer_norm_after",
        **roberta_head(),
        "head.decoder.bias": "lm_head.bias",
    },
    accepts={**ENCODER_ONLY, "token_dropout": (False,), "is_folding_model": (False,)},
    constants=_esm_constants,
    # transformers 5 writes this buffer with a literal star in its name.
    renamed={**GAMMA_BETA, r"encoder\.layer\.(\d+|\*)\.attention\.self\.rotary": "rotary"},
    ignored=("esm.contact_head.*", "esm.pooler.*", "esm.embeddings.position_*"),
    write_more=lambda config: {"position_embedding_type": "rotary", "token_dropout": False},
    read_more=_read_esm,
)
