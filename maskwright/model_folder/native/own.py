"""maskwright's own names, for architectures that no published class computes."""

import dataclasses

from maskwright.model.config import EncoderConfig
from maskwright.model_folder.native.family import (
    DENSE,
    OUTPUT,
    ConfigValues,
    Family,
    NativeHead,
    RawConfig,
    read_value,
    same,
)

_OPTIONAL = ("cls_token_id", "sep_token_id", "mask_token_id")
_LEFT_OUT = ("attention_backend", "model_type", "mlp_output_bias", "embedding_size", *_OPTIONAL)
# The values of these fields for older files, which lack them.
_LATER = {
    "prediction_head_size": 0,
    "next_token_prediction": False,
    "sentence_pair_head": False,
    "position_buckets": 256,
}
_ENCODER = (
    *(f"encoder.embeddings.{name}" for name in ("word", "position", "token_type", "norm")),
    *(
        f"encoder.blocks.*.{name}"
        for name in (
            *("attention_norm", "attention.qkv", "attention.q_norm", "attention.k_norm"),
            *("attention.output", "mlp_norm", "mlp.input", "mlp.output"),
        )
    ),
    *("encoder.project", "encoder.final_norm", "encoder.relative.embedding"),
    "encoder.relative.norm",
)
_MLM_HEAD = (
    "head.decoder",
    *(f"head.transform.{name}" for name in ("dense", "norm", "input", "output")),
    *(f"pair_head.{name}" for name in ("pooler", "classifier")),
)


def _write_more(config: EncoderConfig) -> ConfigValues:
    width = {} if config.embedding_size is None else {"embedding_size": config.embedding_size}
    return {name: getattr(config, name) for name in (*_OPTIONAL, "mlp_output_bias")} | width


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    optional = (*_OPTIONAL, "embedding_size")
    more = {name: read_value(raw.get(name), name, name) for name in optional}
    bias = raw.get("mlp_output_bias", values["mlp_bias"])
    return {**more, "mlp_output_bias": read_value(bias, "mlp_output_bias", "mlp_output_bias")}


OWN = Family(
    model_type="maskwright",
    architecture="MaskedLanguageModel",
    preset=None,
    fields=same(
        **{
            field.name: _LATER.get(field.name)
            for field in dataclasses.fields(EncoderConfig)
            if field.name not in _LEFT_OUT
        }
    ),
    tensors={name: name for name in (*_ENCODER, *_MLM_HEAD)},
    write_more=_write_more,
    read_more=_read_more,
    classifiers={
        "text": NativeHead(
            "TextClassifier",
            {DENSE: DENSE, OUTPUT: OUTPUT, "head.weigh": "head.weigh"},
            "gelu",
            poolings={word: word for word in ("mean", "cls", "late", "bi")},
        ),
        "token": NativeHead("TokenClassifier", {OUTPUT: OUTPUT}, None),
        "span": NativeHead("QuestionAnswerer", {OUTPUT: OUTPUT}, None),
    },
)
