"""Folders with models of one or two layers, 32 wide: as many architectures as there are presets."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.attention_context import context_from_lengths
from maskwright.config import from_mapping
from maskwright.interop.comparison import PaddedRows
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import LoadedModel, save_model
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.model_folder.helpers import tiny_tokenizer

NATIVE: dict[str, dict[str, Any]] = {
    "bert": {"preset": "bert", "num_hidden_layers": 1},
    "modernbert": {"preset": "modernbert", "local_attention": 8, "global_attn_every_n_layers": 2},
    "eurobert": {"preset": "eurobert", "num_hidden_layers": 1},
}
OWN: dict[str, Any] = {
    "preset": "modernbert", "qk_norm": True, "positions": "sinusoidal", "norm": "rmsnorm",
    "num_hidden_layers": 1,
}  # fmt: skip
PRESETS = {**NATIVE, "own": OWN}
LONGEST = 40


def write_model(
    folder: Path,
    fields: dict[str, Any],
    card: str | None = None,
    *,
    judges_pairs: bool = False,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Writes a model with random weights, larger than training begins with, so that all count."""
    tokenizer = tokenizer or tiny_tokenizer(folder.parent / f"{folder.name}-tokenizer")
    sizes = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 48, "initializer_range": 0.2, "init_output": "normal",
    }  # fmt: skip
    config = resolve_config(
        from_mapping(ModelConfig, {**sizes, **fields}),
        vocab_size=tokenizer.vocab_size,
        max_seq_length=LONGEST,
        pad_token_id=tokenizer.pad_id,
        cls_token_id=tokenizer.cls_id,
        sep_token_id=tokenizer.sep_id,
        mask_token_id=tokenizer.mask_id,
        sentence_pair_head=judges_pairs,
    )
    model = MaskedLanguageModel(config)
    initialize(model, seed=0)
    save_model(folder, model, tokenizer, card)
    return folder


@torch.no_grad()
def encode(loaded: LoadedModel, batch: PaddedRows) -> Tensor:
    """The outputs of our encoder for a batch: [B, L, D]."""
    input_ids, attention_mask = batch
    context = context_from_lengths(attention_mask.sum(1).tolist(), input_ids.shape[1])
    return loaded.model.encoder(input_ids.flatten(), context).unflatten(0, input_ids.shape)
