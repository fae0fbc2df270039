"""DebertaV2ForMaskedLM, the class of DeBERTa v2 and v3. He et al., "DeBERTaV3", 2021.

Supported are relative positions as in all published models from v2 on, without the convolution of
v2-xlarge. The class has two heads of the same function; we write the one that all versions of
transformers have (``legacy``), and read both.
"""

from collections.abc import Mapping
from typing import Any

from maskwright.errors import ConfigError
from maskwright.model_folder.native.family import (
    ConfigValues,
    Family,
    Field,
    NativeHead,
    RawConfig,
    same,
)
from maskwright.model_folder.native.shared_names import (
    DENSE,
    GAMMA_BETA,
    OUTPUT,
    bert_blocks,
    bert_embeddings,
    bert_fields,
    bert_head,
    token_classifier,
)

# Their defaults are other values, so these must be in the file.
_REQUIRED: Mapping[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    for name, needed in _REQUIRED.items():
        value = raw.get(name)
        parts = value.split("|") if isinstance(value, str) and name == "pos_att_type" else value
        found = sorted(map(str, parts)) if isinstance(parts, list) else parts
        if found != needed:
            rule = "is not supported for model_type deberta-v2"
            raise ConfigError(name, value, rule, f"Only {needed} is.")
    sizes = {"max_relative_positions": "max_position_embeddings", "embedding_size": "hidden_size"}
    for name, other in sizes.items():
        if raw.get(name) not in (None, -1, values[other]):
            raise ConfigError(name, raw[name], f"must be equal to {other} = {values[other]}")
    return {}


DEBERTA_V2 = Family(
    model_type="deberta-v2",
    architecture="DebertaV2ForMaskedLM",
    preset="deberta-v2",
    since=lambda config: "5.23",
    fields=(
        *bert_fields(
            norm_eps=1e-7,
            vocab_size=128_100,
            hidden_size=1536,
            num_hidden_layers=24,
            num_attention_heads=24,
            intermediate_size=6144,
        ),
        same("type_vocab_size", 0),
        same("position_buckets", -1),
        Field("hidden_act", ("hidden_act", "head_act"), "gelu"),
    ),
    tensors={
        **bert_embeddings("deberta"),
        **bert_blocks("deberta.encoder.layer.*"),
        "encoder.blocks.*.attention.qkv": tuple(
            f"deberta.encoder.layer.*.attention.self.{part}_proj"
            for part in ("query", "key", "value")
        ),
        "encoder.relative.embedding": "deberta.encoder.rel_embeddings",
        "encoder.relative.norm": "deberta.encoder.LayerNorm",
        **bert_head(),
    },
    accepts={"conv_kernel_size": (0,), "pooler_hidden_act": ("gelu",)},
    tied_bias="cls.predictions.bias",
    renamed={
        **GAMMA_BETA,
        r"^lm_predictions\.lm_head\.(dense|LayerNorm)": r"cls.predictions.transform.\1",
        r"^lm_predictions\.lm_head\.bias": "cls.predictions.bias",
    },
    ignored=("mask_predictions.*", "deberta.embeddings.position_*"),
    write_more=lambda config: {**_REQUIRED, "max_relative_positions": -1, "legacy": True},
    read_more=_read_more,
    classifiers={
        "text": NativeHead(
            "DebertaV2ForSequenceClassification",
            {DENSE: "pooler.dense", OUTPUT: "classifier"},
            "gelu",
            dropout_field="cls_dropout",
            ignored=("cls.*",),
        ),
        "token": token_classifier("DebertaV2", "cls.*"),
    },
)
