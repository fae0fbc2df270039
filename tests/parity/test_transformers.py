"""The same numbers as the published classes: from their weights, and from ours in their names."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    EuroBertConfig,
    ModernBertConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from maskwright.artifact.folder import load_model, save_model
from maskwright.model.attention_context import context_from_lengths
from maskwright.model.pretraining import MaskedLanguageModel
from tests.artifact.helpers import tiny_tokenizer, write_tokenizer
from tests.model.helpers import random_ids, randomise, tiny_model

LENGTHS, ROW = (13, 16, 1, 7), 16
OURS = {
    "bert": {"preset": "bert"},
    "bert untied": {"preset": "bert", "tie_word_embeddings": False, "hidden_act": "relu"},
    "bert types": {"preset": "bert", "type_vocab_size": 3, "norm_eps": 1e-5, "hidden_act": "silu"},
    "modernbert": {"preset": "modernbert", "local_attention": 6},
    "modernbert odd window": {"preset": "modernbert", "local_attention": 5, "rope_theta": 77.0},
    "modernbert biases": {
        "preset": "modernbert",
        "local_attention": 4,
        "local_rope_theta": 50.0,
        "global_attn_every_n_layers": 2,
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "head_bias": True,
        "decoder_bias": False,
    },
    "modernbert untied": {
        "preset": "modernbert",
        "tie_word_embeddings": False,
        "hidden_act": "gelu_pytorch_tanh",
        "head_act": "relu",
        "global_attn_every_n_layers": 1,
    },
    "eurobert": {"preset": "eurobert"},
    "eurobert tied biases": {
        "preset": "eurobert",
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_theta": 250.0,
        "hidden_act": "relu2",
    },
    "bert spelled out of modernbert": {
        "preset": "modernbert",
        "norm_position": "post",
        "positions": "learned",
        "gated_mlp": False,
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "head_bias": True,
        "type_vocab_size": 1,
        "global_attn_every_n_layers": 1,
    },
}
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
MODERN: dict[str, Any] = {**SIZES, "cls_token_id": 2, "sep_token_id": 3}
THEIRS = {
    "bert": BertConfig(**SIZES),
    "bert untied": BertConfig(**SIZES, tie_word_embeddings=False, hidden_act="gelu_new"),
    "modernbert": ModernBertConfig(**MODERN, local_attention=8),
    "modernbert layers": ModernBertConfig(
        **MODERN,
        local_attention=6,
        layer_types=["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
        norm_bias=True,
        classifier_bias=True,
        classifier_activation="silu",
        hidden_activation="swish",
    ),
    "eurobert": EuroBertConfig(**SIZES, mask_token_id=4),
    "eurobert tied": EuroBertConfig(
        **SIZES, mask_token_id=4, tie_word_embeddings=True, mlp_bias=True
    ),
}


def padded_ids() -> Tensor:
    """[rows, ROW] ids with padding behind each row's real tokens."""
    ids = random_ids(len(LENGTHS) * ROW).view(-1, ROW)
    real = torch.arange(ROW) < torch.tensor(LENGTHS)[:, None]
    return ids * real


@torch.no_grad()
def largest_difference(
    ours: MaskedLanguageModel, theirs: PreTrainedModel, types: Tensor | None = None
) -> float:
    """Over the logits of all real tokens of a padded batch."""
    ids = padded_ids()
    real = ids != 0
    context = context_from_lengths(LENGTHS, ROW)
    places = real.flatten().nonzero()[:, 0]
    found = ours(ids.flatten(), context, places, None if types is None else types.flatten())
    extra = {} if types is None else {"token_type_ids": types}
    expected = theirs.eval()(input_ids=ids, attention_mask=real.long(), **extra).logits[real]
    assert expected.std() > 0.1
    return (found - expected).abs().max().item()


@pytest.mark.parametrize("variant", OURS)
def test_transformers_loads_our_folder(variant: str, tmp_path: Path) -> None:
    model = tiny_model(**OURS[variant])
    save_model(tmp_path / "model", model, tiny_tokenizer(tmp_path / "tokenizer"))
    theirs, info = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert largest_difference(model, theirs) <= 1e-5
    back, _ = load_model(tmp_path / "model")
    assert largest_difference(back, theirs) <= 1e-5


@pytest.mark.parametrize("variant", THEIRS)
def test_we_load_a_folder_of_transformers(variant: str, tmp_path: Path) -> None:
    theirs = build(THEIRS[variant])
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    ours, _ = load_model(tmp_path)
    assert largest_difference(ours, theirs) <= 1e-5


def test_token_types_are_theirs(tmp_path: Path) -> None:
    theirs = build(THEIRS["bert"])
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    ours, _ = load_model(tmp_path)
    types = (torch.arange(ROW) > 4).long().expand(len(LENGTHS), -1)
    assert largest_difference(ours, theirs, types) <= 1e-5


def test_weights_in_parts_and_in_half_precision_are_read(tmp_path: Path) -> None:
    theirs = build(THEIRS["modernbert"]).bfloat16()
    theirs.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    write_tokenizer(tmp_path)
    ours, _ = load_model(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    again = AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert largest_difference(ours, again) <= 1e-5


def build(config: PretrainedConfig) -> PreTrainedModel:
    """A model of theirs with every parameter random, norms and biases too."""
    model = AutoModelForMaskedLM.from_config(config)
    randomise(model, seed=1)
    return model.eval()
