"""BertForMaskedLM. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019."""

from collections.abc import Mapping
from typing import Any

from maskwright.artifact.native.family import Family, Field, RawConfig, same
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig

FIELDS = (
    same("vocab_size", 30_522),
    same("hidden_size", 768),
    same("num_hidden_layers", 12),
    same("num_attention_heads", 12),
    same("intermediate_size", 3072),
    same("max_position_embeddings", 512),
    same("type_vocab_size", 2),
    same("pad_token_id", 0),
    same("initializer_range", 0.02),
    same("tie_word_embeddings", True),
    Field("hidden_act", ("hidden_act", "head_act"), "gelu"),
    Field("layer_norm_eps", ("norm_eps",), 1e-12),
    Field("hidden_dropout_prob", ("hidden_dropout", "embedding_dropout"), 0.1),
    Field("attention_probs_dropout_prob", ("attention_dropout",), 0.1),
)
FIXED = {
    "gated_mlp": False, "norm": "layernorm", "norm_position": "post", "norm_bias": True,
    "positions": "learned", "rope_theta": 10_000.0, "local_rope_theta": 10_000.0,
    "embedding_norm": True, "first_attention_norm": True, "attention_bias": True,
    "mlp_bias": True, "qk_norm": False, "local_attention": 128, "head_transform": True,
    "head_bias": True, "decoder_bias": True,
}  # fmt: skip
LAYER = "bert.encoder.layer.*"
TENSORS = {
    "encoder.embeddings.word": "bert.embeddings.word_embeddings",
    "encoder.embeddings.position": "bert.embeddings.position_embeddings",
    "encoder.embeddings.token_type": "bert.embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "encoder.blocks.*.attention.qkv": (
        f"{LAYER}.attention.self.query",
        f"{LAYER}.attention.self.key",
        f"{LAYER}.attention.self.value",
    ),
    "encoder.blocks.*.attention.output": f"{LAYER}.attention.output.dense",
    "encoder.blocks.*.attention_norm": f"{LAYER}.attention.output.LayerNorm",
    "encoder.blocks.*.mlp.input": f"{LAYER}.intermediate.dense",
    "encoder.blocks.*.mlp.output": f"{LAYER}.output.dense",
    "encoder.blocks.*.mlp_norm": f"{LAYER}.output.LayerNorm",
    "head.transform.dense": "cls.predictions.transform.dense",
    "head.transform.norm": "cls.predictions.transform.LayerNorm",
    "head.decoder": "cls.predictions.decoder",
}
TIED_BIAS = {"head.decoder.bias": "cls.predictions.bias"}


def _tensors(config: EncoderConfig) -> Mapping[str, str | tuple[str, ...]]:
    return {**TENSORS, **TIED_BIAS} if config.tie_word_embeddings else TENSORS


def _written_twice(config: EncoderConfig) -> Mapping[str, str]:
    # Untied, transformers keeps a second bias that its head does not use but expects to find.
    both = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
    return {} if config.tie_word_embeddings else both


def _read_more(raw: RawConfig, values: dict[str, Any]) -> dict[str, Any]:
    if values["type_vocab_size"] < 1:
        raise ConfigError("type_vocab_size", 0, "is impossible in BERT, which needs at least 1")
    return {"layer_types": ("full_attention",) * values["num_hidden_layers"]}


BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    fields=FIELDS,
    fixed=FIXED,
    tensors=_tensors,
    accepts={
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "position_embedding_type": ("absolute",),
    },
    ignored=(
        "bert.pooler.",
        "cls.seq_relationship.",
        "bert.embeddings.position_ids",
        "cls.predictions.decoder.",
        "cls.predictions.bias",
    ),
    renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    read_more=_read_more,
    written_twice=_written_twice,
)
