"""EuroBertForMaskedLM. Boizard et al., "EuroBERT: Scaling Multilingual Encoders", 2025."""

from maskwright.model.config import EncoderConfig
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
    OUTPUT,
    llama_blocks,
    read_one_rope,
    size_fields,
    token_classifier,
    write_one_rope,
)

PRE_NORM_TENSORS = {
    "encoder.embeddings.word": "model.embed_tokens",
    **llama_blocks(
        "model.layers.*", attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"
    ),
    "encoder.final_norm": "model.norm",
}


def write_heads(config: EncoderConfig) -> ConfigValues:
    """Return the fields of `check_heads`, and the end-of-text id, which may be a list."""
    return {
        "num_key_value_heads": config.num_attention_heads,
        "head_dim": config.head_size,
        "eos_token_id": config.sep_token_id,
    }


def read_eos(raw: RawConfig, default: int) -> ConfigValues:
    """Return the end-of-text id, if it is a single one."""
    sep = raw.get("eos_token_id", default)
    return {"sep_token_id": sep if isinstance(sep, int) else None}


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    return {**read_one_rope(10_000.0)(raw, values), **read_eos(raw, 128_001)}


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
        same("hidden_act", "silu"),
        same("attention_bias", False),
        same("attention_dropout", 0.0),
        same("mask_token_id", 128_002),
        Field("rms_norm_eps", ("norm_eps",), 1e-5),
        Field("mlp_bias", ("mlp_bias", "mlp_output_bias", "decoder_bias"), False),
        Field("bos_token_id", ("cls_token_id",), 128_000),
    ),
    tensors={**PRE_NORM_TENSORS, "head.decoder": "lm_head"},
    accepts={"rope_scaling": (None,), "is_decoder": (False,)},
    write_more=lambda config: {**write_one_rope(config), **write_heads(config)},
    read_more=_read_more,
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
