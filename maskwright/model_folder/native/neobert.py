"""NeoBERTLMHead. Le Breton et al., "NeoBERT: A Next-Generation BERT", 2025.

Its code is in the authors' repository on the hub (chandar-lab/NeoBERT), not in transformers. It
rotates neighboring numbers of a head, where we rotate its two halves, and stores queries, keys and
values head by head: the same function with the rows of ``qkv`` in another order.
"""

import torch
from torch import Tensor

from maskwright.model.config import EncoderConfig
from maskwright.model_folder.native.family import ConfigValues, Family, Field, RawConfig, same

_CODE = "chandar-lab/NeoBERT"
_LAYER = "model.transformer_encoder.*"
_MULTIPLE = 8  # its inner width is 2/3 of ``intermediate_size``, rounded up to a multiple of this


def _order_rows(ours: str, config: EncoderConfig) -> Tensor | None:
    if not ours.endswith("attention.qkv.weight"):
        return None
    heads, size = config.num_attention_heads, config.head_size
    rows = torch.arange(3 * config.hidden_size).view(heads, 3, size).transpose(0, 1)
    halves = rows[:2].unflatten(-1, (size // 2, 2)).transpose(-1, -2).flatten(-2)
    return torch.cat((halves, rows[2:])).flatten()


def _write_more(config: EncoderConfig) -> ConfigValues:
    kinds = {"Config": "Config", "Model": "", "ModelForMaskedLM": "LMHead"}
    return {
        "intermediate_size": 3 * config.intermediate_size // 2,
        "auto_map": {f"Auto{k}": f"{_CODE}--model.NeoBERT{name}" for k, name in kinds.items()},
    }


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    inner = int(2 * values["intermediate_size"] / 3)
    return {"intermediate_size": -(-inner // _MULTIPLE) * _MULTIPLE}


NEOBERT = Family(
    model_type="neobert",
    architecture="NeoBERTLMHead",
    preset="neobert",
    code=_CODE,
    fields=(
        same("vocab_size", 30_522),
        same("hidden_size", 768),
        same("num_hidden_layers", 28),
        same("num_attention_heads", 12),
        same("intermediate_size", 3072),
        same("norm_eps", 1e-6),
        same("pad_token_id", 0),
        Field("max_length", ("max_position_embeddings",), 1024),
    ),
    tensors={
        "encoder.embeddings.word": "model.encoder",
        "encoder.blocks.*.attention_norm": f"{_LAYER}.attention_norm",
        "encoder.blocks.*.attention.qkv": f"{_LAYER}.qkv",
        "encoder.blocks.*.attention.output": f"{_LAYER}.wo",
        "encoder.blocks.*.mlp_norm": f"{_LAYER}.ffn_norm",
        "encoder.blocks.*.mlp.input": f"{_LAYER}.ffn.w12",
        "encoder.blocks.*.mlp.output": f"{_LAYER}.ffn.w3",
        "encoder.final_norm": "model.layer_norm",
        "head.decoder": "decoder",
    },
    row_order=_order_rows,
    write_more=_write_more,
    read_more=_read_more,
)
