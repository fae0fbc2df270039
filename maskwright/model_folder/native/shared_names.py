"""Parts of tables that several families share.

Most encoders after BERT use BERT's names for fields, embeddings and heads, and the names of either
BERT or Llama for blocks.
"""

from collections.abc import Callable, Mapping
from typing import Any

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, HeadActivation, Level
from maskwright.model_folder.native.family import (
    ConfigValues,
    Field,
    Names,
    NativeHead,
    RawConfig,
    read_value,
    same,
)

ENCODER_ONLY = {"is_decoder": (False,), "add_cross_attention": (False,)}
ABSOLUTE = {**ENCODER_ONLY, "position_embedding_type": ("absolute",)}
# The tensor names of the first BERT of 2018, which transformers also reads for every class.
GAMMA_BETA = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
NEEDS_TYPES = {"type_vocab_size": 1}
LARGE: ConfigValues = {  # as BERT-large
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_BERT_BASE = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}


def size_fields(**defaults: Any) -> tuple[Field, ...]:
    """Return the fields of all families; `defaults` override those of BERT's class."""
    return tuple(same(name, value) for name, value in {**_BERT_BASE, **defaults}.items())


def bert_fields(
    *,
    dropped: tuple[str, ...] = ("hidden_dropout", "embedding_dropout"),
    dropout: tuple[float, float] = (0.1, 0.1),
    norm_eps: float = 1e-12,
    **defaults: Any,
) -> tuple[Field, ...]:
    """Return `size_fields` and BERT's names for norms and dropouts.

    Args:
        dropped: our fields for ``hidden_dropout_prob``.
        dropout: the default of it and of ``attention_probs_dropout_prob``.
        norm_eps: the default of ``layer_norm_eps``.
    """
    return (
        *size_fields(**defaults),
        Field("layer_norm_eps", ("norm_eps",), norm_eps),
        Field("hidden_dropout_prob", dropped, dropout[0]),
        Field("attention_probs_dropout_prob", ("attention_dropout",), dropout[1]),
    )


def bert_embeddings(prefix: str) -> Names:
    """Return BERT's names of embeddings; a class may lack some of them."""
    return {
        "encoder.embeddings.word": f"{prefix}.embeddings.word_embeddings",
        "encoder.embeddings.position": f"{prefix}.embeddings.position_embeddings",
        "encoder.embeddings.token_type": f"{prefix}.embeddings.token_type_embeddings",
        "encoder.embeddings.norm": f"{prefix}.embeddings.LayerNorm",
    }


def bert_blocks(
    layer: str,
    *,
    attention_norm: str = "attention.output.LayerNorm",
    mlp_norm: str = "output.LayerNorm",
) -> Names:
    """Return BERT's names of blocks."""
    parts = ("query", "key", "value")
    return {
        "encoder.blocks.*.attention.qkv": tuple(f"{layer}.attention.self.{one}" for one in parts),
        "encoder.blocks.*.attention.output": f"{layer}.attention.output.dense",
        "encoder.blocks.*.attention_norm": f"{layer}.{attention_norm}",
        "encoder.blocks.*.mlp.input": f"{layer}.intermediate.dense",
        "encoder.blocks.*.mlp.output": f"{layer}.output.dense",
        "encoder.blocks.*.mlp_norm": f"{layer}.{mlp_norm}",
    }


def llama_blocks(
    layer: str,
    *,
    attention_norm: str = "post_attention_layernorm",
    mlp_norm: str = "post_mlp_layernorm",
    mlp_input: tuple[str, ...] = ("gate_proj", "up_proj"),
    mlp_output: str = "down_proj",
) -> Names:
    """Return Llama's names of blocks, except those of the norms, which are arguments."""
    attention = f"{layer}.self_attn"
    return {
        "encoder.blocks.*.attention.qkv": tuple(f"{attention}.{one}_proj" for one in "qkv"),
        "encoder.blocks.*.attention.output": f"{attention}.o_proj",
        "encoder.blocks.*.attention_norm": f"{layer}.{attention_norm}",
        "encoder.blocks.*.mlp.input": tuple(f"{layer}.mlp.{name}" for name in mlp_input),
        "encoder.blocks.*.mlp.output": f"{layer}.mlp.{mlp_output}",
        "encoder.blocks.*.mlp_norm": f"{layer}.{mlp_norm}",
    }


def bert_head(norm: str = "LayerNorm") -> Names:
    """Return ``cls.predictions``; the bias of a tied decoder is ``cls.predictions.bias``."""
    return {
        "head.transform.dense": "cls.predictions.transform.dense",
        "head.transform.norm": f"cls.predictions.transform.{norm}",
        "head.decoder": "cls.predictions.decoder",
    }


def roberta_head() -> Names:
    """Return ``lm_head``; the bias of a tied decoder is ``lm_head.bias``."""
    return {
        "head.transform.dense": "lm_head.dense",
        "head.transform.norm": "lm_head.layer_norm",
        "head.decoder": "lm_head.decoder",
    }


# Modules of our classifier heads.
DENSE, NORM, OUTPUT = "head.dense", "head.norm", "head.output"


def bert_classifiers(name: str) -> dict[Level, NativeHead]:
    """Return BERT's classifiers, whose dense layer is the pooler; `name` is the class prefix."""
    head = {DENSE: "bert.pooler.dense", OUTPUT: "classifier"}
    text = NativeHead(f"{name}ForSequenceClassification", head, "tanh", ignored=("cls.*",))
    return {
        "text": text,
        "token": token_classifier(name, "cls.*"),
        "span": span_classifier(name, "cls.*"),
    }


def roberta_classifiers(name: str, activation: HeadActivation = "tanh") -> dict[Level, NativeHead]:
    """Return RoBERTa's classifiers, which have a separate dense layer."""
    head = {DENSE: "classifier.dense", OUTPUT: "classifier.out_proj"}
    unused = ("*.pooler.*",)  # which files of older classes hold
    text = NativeHead(f"{name}ForSequenceClassification", head, activation, ignored=unused)
    return {"text": text, "token": token_classifier(name), "span": span_classifier(name)}


def token_classifier(name: str, *ignored: str) -> NativeHead:
    """Return a token classifier with only an output layer."""
    ignored = ("*.pooler.*", *ignored)
    architecture = f"{name}ForTokenClassification"
    return NativeHead(architecture, {OUTPUT: "classifier"}, None, ignored=ignored)


def span_classifier(name: str, *ignored: str) -> NativeHead:
    """Return a classifier that finds the answer to a question: an output layer of two labels."""
    ignored = ("*.pooler.*", *ignored)
    return NativeHead(f"{name}ForQuestionAnswering", {OUTPUT: "qa_outputs"}, None, ignored=ignored)


# fairseq counts positions from pad_token_id + 1, so its table has that many unused first rows.


def count_padding_rows(ours: str, config: EncoderConfig) -> int:
    return config.pad_token_id + 1 if ours == "encoder.embeddings.position.weight" else 0


def write_padding_rows(config: EncoderConfig) -> ConfigValues:
    return {"max_position_embeddings": config.max_position_embeddings + config.pad_token_id + 1}


def read_padding_rows(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    rows, before = values["max_position_embeddings"], values["pad_token_id"] + 1
    if rows <= before:
        rule = f"must be more than the {before} rows before position 0 (pad_token_id + 1)"
        raise ConfigError("max_position_embeddings", rows, rule)
    return {"max_position_embeddings": rows - before}


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
        older = raw.get("rope_theta") or raw.get("rotary_emb_base") or default
        return {"rope_theta": read_rope_theta(raw.get("rope_parameters"), "rope_parameters", older)}

    return read


def read_rope_theta(parameters: Any, name: str, default: Any) -> float:
    """Return the base of the frequencies in an entry of ``rope_parameters``.

    Raises:
        ConfigError: the entry is a scaled or partial variant, which is not supported.
    """
    entries = {} if parameters is None else parameters
    if not isinstance(entries, Mapping):
        raise ConfigError(name, entries, "must hold rope_type and rope_theta")
    for key, value in entries.items():
        if key != "rope_theta" and (key, value) != ("rope_type", "default"):
            raise ConfigError(f"{name}.{key}", value, "is not supported")
    return read_value(entries.get("rope_theta") or default, "rope_theta", f"{name}.rope_theta")


def read_two_ropes(raw: RawConfig, full: Any, sliding: Any) -> ConfigValues:
    """Return the rotary bases of global and local layers, by default `full` and `sliding`."""
    rope = raw.get("rope_parameters") or {}
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
