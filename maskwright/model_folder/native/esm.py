"""EsmForMaskedLM with rotary positions. Lin et al., "Evolutionary-scale prediction", 2022.

It is a protein model, and its encoder is pre-norm with rotary positions, plain MLPs and all biases.
``token_dropout``, a scaling of embeddings by the share of masked tokens, is not supported.
"""

import torch
from torch import Tensor

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.model.embeddings import rotary_frequencies
from maskwright.model_folder.native.family import ConfigValues, Family, Field, RawConfig, same
from maskwright.model_folder.native.shared_names import (
    ENCODER_ONLY,
    GAMMA_BETA,
    bert_blocks,
    bert_fields,
    check_heads,
    roberta_head,
)


def _constants(config: EncoderConfig) -> dict[str, Tensor]:
    """Return the buffers and the head for protein contacts, which its class always has."""
    maps = config.num_hidden_layers * config.num_attention_heads
    return {
        "esm.rotary_embeddings.inv_freq": rotary_frequencies(config.head_size, config.rope_theta),
        "esm.contact_head.regression.weight": torch.zeros(1, maps),
        "esm.contact_head.regression.bias": torch.zeros(1),
    }


def _find_since(config: EncoderConfig) -> str:
    """Return the first version that reads `config`; older ones have a fixed rotary base."""
    return "4.44" if config.rope_theta == 10_000.0 else "5.17"


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    check_heads(raw, values)
    positions = raw.get("position_embedding_type") or "absolute"
    if positions != "rotary":
        rule = "is not supported for model_type esm"
        raise ConfigError("position_embedding_type", positions, rule, "Use rotary.")
    return {}


ESM = Family(
    model_type="esm",
    architecture="EsmForMaskedLM",
    preset="esm",
    since=_find_since,
    fields=(
        *bert_fields(
            dropped=("hidden_dropout",),
            vocab_size=None,
            pad_token_id=None,
            max_position_embeddings=1026,
        ),
        same("rope_theta", 10_000.0),
        same("mask_token_id", None),
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
    constants=_constants,
    # transformers 5 writes this buffer with a literal star in its name.
    renamed={**GAMMA_BETA, r"encoder\.layer\.(\d+|\*)\.attention\.self\.rotary": "rotary"},
    ignored=("esm.contact_head.*", "esm.pooler.*", "esm.embeddings.position_*"),
    write_more=lambda config: {"position_embedding_type": "rotary", "token_dropout": False},
    read_more=_read_more,
)
