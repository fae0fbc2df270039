"""ModernBertForMaskedLM. Warner et al., "Smarter, Better, Faster, Longer", 2024.

Its class applies ``attention_dropout`` again after the output projection, where ours applies
``hidden_dropout``; published models have none.
"""

from collections.abc import Mapping
from typing import cast

from maskwright.config import convert
from maskwright.model.config import EncoderConfig, HeadActivation, Pooling, find_period
from maskwright.model_folder.native.family import (
    ConfigValues,
    Family,
    Field,
    NativeHead,
    RawConfig,
    read_value,
    same,
)
from maskwright.model_folder.native.shared_names import (
    DENSE,
    NORM,
    OUTPUT,
    read_two_ropes,
    size_fields,
    write_two_ropes,
)

LAYER = "model.layers.*"


def _find_since(config: EncoderConfig) -> str:
    """Return the first version that reads `config`; older ones need global layers at a period."""
    return "4.48" if find_period(config) else "5.2"


def _write_more(config: EncoderConfig) -> ConfigValues:
    period = find_period(config)
    return {
        **write_two_ropes(config),
        # transformers before 5.2 reads these in place of ``layer_types`` and the ropes.
        "global_rope_theta": config.rope_theta,
        "local_rope_theta": config.local_rope_theta,
        **({"global_attn_every_n_layers": period} if period else {}),
        "layer_norm_eps": config.norm_eps,  # the name that vLLM up to 0.11 reads
        "bos_token_id": config.cls_token_id,
        "eos_token_id": config.sep_token_id,
    }


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    types = raw.get("layer_types")
    if types is None:  # files of 2024 have a period instead
        period = "global_attn_every_n_layers"
        every = convert(raw.get(period) or 3, int, period)
        layers = range(values["num_hidden_layers"])
        types = ["sliding_attention" if layer % every else "full_attention" for layer in layers]
    older = (raw.get("global_rope_theta") or 160_000.0, raw.get("local_rope_theta") or 10_000.0)
    return {
        "layer_types": read_value(types, "layer_types", "layer_types"),
        **read_two_ropes(raw, *older),
    }


def _build_classifier(purpose: str, poolings: Mapping[Pooling, str]) -> NativeHead:
    return NativeHead(
        f"ModernBertFor{purpose}",
        {DENSE: "head.dense", NORM: "head.norm", OUTPUT: "classifier"},
        lambda config: cast(HeadActivation, config.head_act),
        has_norm=True,
        poolings=poolings,
        bias=lambda config: config.head_bias,
    )


MODERNBERT = Family(
    model_type="modernbert",
    architecture="ModernBertForMaskedLM",
    preset="modernbert",
    since=_find_since,
    fields=(
        *size_fields(
            vocab_size=50_368,
            num_hidden_layers=22,
            intermediate_size=1152,
            max_position_embeddings=8192,
            pad_token_id=50_283,
        ),
        same("norm_eps", 1e-5),
        same("norm_bias", False),
        same("attention_bias", False),
        same("decoder_bias", True),
        same("local_attention", 128),
        same("embedding_dropout", 0.0),
        same("attention_dropout", 0.0),
        same("mlp_dropout", 0.0),
        same("initializer_cutoff_factor", 2.0),
        same("cls_token_id", 50_281),
        same("sep_token_id", 50_282),
        Field("mlp_bias", ("mlp_bias", "mlp_output_bias"), False),
        Field("hidden_activation", ("hidden_act",), "gelu"),
        Field("classifier_activation", ("head_act",), "gelu"),
        Field("classifier_bias", ("head_bias",), False),
    ),
    tensors={
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
    },
    accepts={"position_embedding_type": ("absolute", "rope"), "rope_scaling": (None,)},
    write_more=_write_more,
    read_more=_read_more,
    classifiers={
        "text": _build_classifier("SequenceClassification", {"cls": "cls", "mean": "mean"}),
        "token": _build_classifier("TokenClassification", {}),
        "span": _build_classifier("QuestionAnswering", {}),
    },
)
