"""Our own spelling, for every architecture that no published class can compute."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from maskwright.artifact.native.family import Family, RawConfig, read_value, same
from maskwright.model.config import EncoderConfig

_OPTIONAL = ("cls_token_id", "sep_token_id", "mask_token_id")
_LEFT_OUT = ("attention_backend", *_OPTIONAL)
FIELDS = tuple(
    same(field.name, None)
    for field in dataclasses.fields(EncoderConfig)
    if field.name not in _LEFT_OUT
)


def _tensors(config: EncoderConfig) -> Mapping[str, str | tuple[str, ...]]:
    with_layers = ("attention_norm", "attention.qkv", "attention.q_norm", "attention.k_norm")
    with_layers += ("attention.output", "mlp_norm", "mlp.input", "mlp.output")
    names = [f"encoder.blocks.*.{name}" for name in with_layers]
    names += [f"encoder.embeddings.{name}" for name in ("word", "position", "token_type", "norm")]
    names += ["encoder.final_norm", "head.transform.dense", "head.transform.norm", "head.decoder"]
    return {name: name for name in names}


def _write_more(config: EncoderConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _OPTIONAL}


def _read_more(raw: RawConfig, values: dict[str, Any]) -> dict[str, Any]:
    return {name: read_value(raw.get(name), name, name) for name in _OPTIONAL}


OWN = Family(
    model_type="maskwright",
    architecture="MaskedLanguageModel",
    fields=FIELDS,
    fixed={},
    tensors=_tensors,
    write_more=_write_more,
    read_more=_read_more,
)
