"""Pre-norm encoders without biases in their blocks: ModernBERT and those with Llama's blocks.

ModernBert: Warner et al., "Smarter, Better, Faster, Longer", 2024. Its class applies
``attention_dropout`` again after the output projection, where ours applies ``hidden_dropout``;
published models have none.

EuroBert: Boizard et al., "EuroBERT: Scaling Multilingual Encoders", 2025. Ultrabert: EuroBERT with
local attention and a head of two layers. Its ``sliding_window`` is the window on each side; our
``local_attention`` is the total window. The first files, older than the class in transformers, have
a window and a rotary base for each layer.

NeoBERT: Le Breton et al., "NeoBERT: A Next-Generation BERT", 2025. Its code is in the authors'
repository on the hub (chandar-lab/NeoBERT), not in transformers. It rotates neighboring numbers of
a head, where we rotate its two halves, and stores queries, keys and values head by head: the same
function with the rows of ``qkv`` in another order.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from maskwright.config import convert
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, HeadActivation, LayerType, Pooling, find_period
from maskwright.model_folder.native.bert_like import token_classifier
from maskwright.model_folder.native.family import (
    DENSE,
    NORM,
    OUTPUT,
    ConfigValues,
    Family,
    Field,
    NativeHead,
    RawConfig,
    find_stated,
    name_blocks,
    name_head,
    read_value,
    same,
    size_fields,
)
from maskwright.model_folder.native.rotary import (
    check_heads,
    llama_blocks,
    read_one_rope,
    read_two_ropes,
    write_one_rope,
    write_two_ropes,
)


def _find_modernbert_since(config: EncoderConfig) -> str:
    """Return the first version that reads `config`; older ones need global layers at a period."""
    return "4.48" if find_period(config) else "5.2"


def _write_modernbert(config: EncoderConfig) -> ConfigValues:
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


def _read_modernbert(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    types = raw.get("layer_types")
    if types is None:  # files of 2024 have a period instead
        period = "global_attn_every_n_layers"
        every = convert(find_stated(raw, 3, period), int, period)
        if every < 1:
            raise ConfigError(period, every, "must be at least 1", "Correct it.")
        layers = range(values["num_hidden_layers"])
        types = ["sliding_attention" if layer % every else "full_attention" for layer in layers]
    older = (
        find_stated(raw, 160_000.0, "global_rope_theta"),
        find_stated(raw, 10_000.0, "local_rope_theta"),
    )
    return {
        "layer_types": read_value(types, "layer_types", "layer_types"),
        **read_two_ropes(raw, *older),
    }


def _modernbert_classifier(purpose: str, poolings: Mapping[Pooling, str]) -> NativeHead:
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
    since=_find_modernbert_since,
    fields=(
        *size_fields(
            vocab_size=50_368,
            num_hidden_layers=22,
            intermediate_size=1152,
            max_position_embeddings=8192,
            pad_token_id=50_283,
        ),
        *same(
            norm_eps=1e-5,
            norm_bias=False,
            attention_bias=False,
            decoder_bias=True,
            local_attention=128,
            embedding_dropout=0.0,
            attention_dropout=0.0,
            mlp_dropout=0.0,
            initializer_cutoff_factor=2.0,
            cls_token_id=50_281,
            sep_token_id=50_282,
        ),
        Field("mlp_bias", ("mlp_bias", "mlp_output_bias"), False),
        Field("hidden_activation", ("hidden_act",), "gelu"),
        Field("classifier_activation", ("head_act",), "gelu"),
        Field("classifier_bias", ("head_bias",), False),
    ),
    tensors={
        "encoder.embeddings.word": "model.embeddings.tok_embeddings",
        "encoder.embeddings.norm": "model.embeddings.norm",
        **name_blocks(
            "model.layers.*", "attn.Wqkv", "attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"
        ),
        "encoder.final_norm": "model.final_norm",
        **name_head("head.dense", "head.norm", "decoder"),
    },
    accepts={"position_embedding_type": ("absolute", "rope"), "rope_scaling": (None,)},
    write_more=_write_modernbert,
    read_more=_read_modernbert,
    classifiers={
        "text": _modernbert_classifier("SequenceClassification", {"cls": "cls", "mean": "mean"}),
        "token": _modernbert_classifier("TokenClassification", {}),
        "span": _modernbert_classifier("QuestionAnswering", {}),
    },
)

_PRE_NORM_TENSORS = {
    "encoder.embeddings.word": "model.embed_tokens",
    **llama_blocks(
        "model.layers.*", attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"
    ),
    "encoder.final_norm": "model.norm",
}


def _write_heads(config: EncoderConfig) -> ConfigValues:
    """Return the fields of `check_heads`, and the end-of-text id, which may be a list."""
    return {
        "num_key_value_heads": config.num_attention_heads,
        "head_dim": config.head_size,
        "eos_token_id": config.sep_token_id,
    }


def _read_eos(raw: RawConfig, default: int) -> ConfigValues:
    """Return the end-of-text id, if it is a single one."""
    sep = raw.get("eos_token_id", default)
    return {"sep_token_id": sep if isinstance(sep, int) else None}


def _read_eurobert(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    return {**read_one_rope(10_000.0)(raw, values), **_read_eos(raw, 128_001)}


EUROBERT = Family(
    model_type="eurobert",
    architecture="EuroBertForMaskedLM",
    preset="eurobert",
    since=lambda config: "5.5",
    fields=(
        *size_fields(
            vocab_size=128_256,
            max_position_embeddings=8192,
            tie_word_embeddings=False,
            pad_token_id=128_001,
        ),
        *same(
            hidden_act="silu", attention_bias=False, attention_dropout=0.0, mask_token_id=128_002
        ),
        Field("rms_norm_eps", ("norm_eps",), 1e-5),
        Field("mlp_bias", ("mlp_bias", "mlp_output_bias", "decoder_bias"), False),
        Field("bos_token_id", ("cls_token_id",), 128_000),
    ),
    tensors={**_PRE_NORM_TENSORS, "head.decoder": "lm_head"},
    accepts={"rope_scaling": (None,), "is_decoder": (False,)},
    write_more=lambda config: {**write_one_rope(config), **_write_heads(config)},
    read_more=_read_eurobert,
    classifiers={
        "text": NativeHead(
            "EuroBertForSequenceClassification",
            {DENSE: "dense", OUTPUT: "classifier"},
            "gelu",
            poolings={"late": "late", "mean": "mean", "cls": "bos"},
        ),
        "token": token_classifier("EuroBert"),
    },
)


def _write_ultrabert(config: EncoderConfig) -> ConfigValues:
    radius = config.local_attention // 2
    return {**write_two_ropes(config), **_write_heads(config), "sliding_window": radius}


def _read_ultrabert(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    check_heads(raw, values)
    types, radius = _read_layers(raw, values["num_hidden_layers"])
    bases = {"full_attention": 2_560_000.0, "sliding_attention": 10_000.0}
    if raw.get("rope_theta") is not None:
        thetas = convert(raw["rope_theta"], tuple[float, ...], "rope_theta")
        bases.update(_read_each("rope_theta", types, thetas))
    return {
        **read_two_ropes(raw, bases["full_attention"], bases["sliding_attention"]),
        **_read_eos(raw, 0),
        "layer_types": types,
        "local_attention": 2 * radius,
    }


def _read_layers(raw: RawConfig, num_layers: int) -> tuple[tuple[LayerType, ...], int]:
    """Return the types of all layers, and the window of local layers on each side."""
    types, radius = raw.get("layer_types"), raw.get("sliding_window")
    if types is None:
        layers = range(1, num_layers + 1)
        types = ["sliding_attention" if layer % 3 else "full_attention" for layer in layers]
    if raw.get("attention_windows") is not None:  # 0 = a global layer
        windows = convert(raw["attention_windows"], tuple[int, ...], "attention_windows")
        types = ["sliding_attention" if window else "full_attention" for window in windows]
        found = _read_each("attention_windows", types, windows)
        radius = found.get("sliding_attention", radius)
    radius = convert(128 if radius is None else radius, int, "sliding_window")
    if radius < 1:
        raise ConfigError("sliding_window", radius, "must be at least 1")
    return read_value(types, "layer_types", "layer_types"), radius


def _read_each(name: str, types: Sequence[str], values: Sequence[float]) -> ConfigValues:
    """Return the value of each layer type from the values of each layer in the first files."""
    found: ConfigValues = {}
    if len(types) != len(values):
        raise ConfigError(name, len(values), f"must have a value for each of {len(types)} layers")
    for kind, value in zip(types, values, strict=True):
        if found.setdefault(kind, value) != value:
            raise ConfigError(name, values, "must be equal in all layers of a type")
    return found


ULTRABERT = Family(
    model_type="ultrabert",
    architecture="UltrabertForMaskedLM",
    preset="ultrabert",
    since=lambda config: "5.20",
    fields=(
        *size_fields(
            vocab_size=32_000,
            hidden_size=4096,
            num_hidden_layers=32,
            num_attention_heads=32,
            intermediate_size=11_008,
            max_position_embeddings=32_768,
            tie_word_embeddings=False,
        ),
        *same(
            hidden_act="silu", attention_bias=False, attention_dropout=0.0, prediction_head_size=768
        ),
        Field("rms_norm_eps", ("norm_eps",), 1e-6),
        Field("mlp_bias", ("mlp_bias", "mlp_output_bias"), False),
        Field("bos_token_id", ("cls_token_id",), 0),
    ),
    tensors={
        **_PRE_NORM_TENSORS,
        "head.transform.input": "head.linear1",
        "head.transform.output": "head.linear2",
        "head.decoder": "head.decoder",
    },
    accepts={"rope_scaling": (None,)},
    at_least={"prediction_head_size": 1},
    renamed={r"^ultrabert\.": "model.", r"^cls\.": "head.decoder."},
    write_more=_write_ultrabert,
    read_more=_read_ultrabert,
)

_CODE = "chandar-lab/NeoBERT"
_MULTIPLE = 8  # its inner width is 2/3 of ``intermediate_size``, rounded up to a multiple of this


def _order_rows(ours: str, config: EncoderConfig) -> Tensor | None:
    if not ours.endswith("attention.qkv.weight"):
        return None
    heads, size = config.num_attention_heads, config.head_size
    rows = torch.arange(3 * config.hidden_size).view(heads, 3, size).transpose(0, 1)
    halves = rows[:2].unflatten(-1, (size // 2, 2)).transpose(-1, -2).flatten(-2)
    return torch.cat((halves, rows[2:])).flatten()


def _write_neobert(config: EncoderConfig) -> ConfigValues:
    kinds = {"Config": "Config", "Model": "", "ModelForMaskedLM": "LMHead"}
    return {
        "intermediate_size": 3 * config.intermediate_size // 2,
        "auto_map": {f"Auto{k}": f"{_CODE}--model.NeoBERT{name}" for k, name in kinds.items()},
    }


def _read_neobert(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    inner = int(2 * values["intermediate_size"] / 3)
    return {"intermediate_size": -(-inner // _MULTIPLE) * _MULTIPLE}


NEOBERT = Family(
    model_type="neobert",
    architecture="NeoBERTLMHead",
    preset="neobert",
    code=_CODE,
    fields=(
        *same(
            vocab_size=30_522,
            hidden_size=768,
            num_hidden_layers=28,
            num_attention_heads=12,
            intermediate_size=3072,
            norm_eps=1e-6,
            pad_token_id=0,
        ),
        Field("max_length", ("max_position_embeddings",), 1024),
    ),
    tensors={
        "encoder.embeddings.word": "model.encoder",
        **name_blocks(
            "model.transformer_encoder.*",
            *("qkv", "wo", "attention_norm"),
            *("ffn.w12", "ffn.w3", "ffn_norm"),
        ),
        "encoder.final_norm": "model.layer_norm",
        "head.decoder": "decoder",
    },
    row_order=_order_rows,
    write_more=_write_neobert,
    read_more=_read_neobert,
)
