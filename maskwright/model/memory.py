"""The memory of a training step on one device, estimated from the configuration alone.

Activations are those that the backward pass needs (Korthikanti et al., "Reducing Activation
Recomputation in Large Transformer Models", 2022), here with flash attention, compiled blocks and a
residual stream in fp32. tests/model/test_memory.py compares them with measured peaks.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters

_FP32 = 4


@dataclass(frozen=True)
class MemoryEstimate:
    """The bytes of each part at the peak of a step; `weights` includes autocast's copies."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """The bytes of all parts."""
        return self.weights + self.gradients + self.optimizer + self.activations


def estimate_memory(
    config: EncoderConfig,
    micro_batch_tokens: int,
    row_length: int,
    masked_share: float,
    optimizer: Literal["muon", "adamw"] = "adamw",
    dtype: torch.dtype = torch.bfloat16,
    checkpointing: bool = False,
) -> MemoryEstimate:
    """Return the memory of a step of a masked language model whose state is whole on the device.

    Args:
        config: the architecture.
        micro_batch_tokens: tokens of a forward pass, padding included.
        row_length: tokens of a row.
        masked_share: the largest share of tokens to predict.
        optimizer: as `OptimConfig.name`; AdamW stores two numbers a parameter, Muon one.
        dtype: precision of the products.
        checkpointing: True to store the inputs of blocks alone and compute the rest again.
    """
    parts, size = count_parameters(config), dtype.itemsize
    copies = size if size < _FP32 else 0
    slots = 2 * parts.total - (parts.blocks if optimizer == "muon" else 0)
    per_token = _count_activations(config, row_length, masked_share, size, checkpointing)
    return MemoryEstimate(
        weights=(_FP32 + copies) * parts.total,
        gradients=_FP32 * parts.total,
        optimizer=_FP32 * slots,
        activations=per_token * micro_batch_tokens,
    )


def _count_activations(
    config: EncoderConfig, row_length: int, masked_share: float, size: int, checkpointing: bool
) -> float:
    """Return the bytes a token at the beginning of the backward pass, or in its first block.

    Args:
        size: bytes of a number in the dtype of the products.
    """
    stream, width = _FP32 * config.hidden_size, size * config.hidden_size
    inner, layers = size * config.intermediate_size, config.num_hidden_layers
    has_dropout = config.attention_dropout > 0
    # Input, its norm, queries, keys, values, the rotated ones, what attention returns.
    rotated = 2 * ((config.positions == "rotary") + config.qk_norm)
    attention = stream + (5 + rotated) * width
    if config.positions == "relative":  # scores, which flash attention does not store
        scores = config.num_attention_heads * row_length
        attention += scores * (_FP32 + 2 * size + has_dropout)
    # Input, its norm, and the two or three vectors inside of the MLP.
    mlp = stream + width + (3 if config.gated_mlp else 2) * inner
    mlp += (1 + size) * config.intermediate_size * (config.mlp_dropout > 0)
    if config.norm_position == "post":  # the sums before the norms
        attention, mlp = attention + stream, mlp + stream
    if config.hidden_dropout:  # one byte an element
        attention, mlp = attention + config.hidden_size, mlp + config.hidden_size
    block = attention + mlp
    # The end of the last block processes masked tokens alone.
    blocks = layers * stream if checkpointing else layers * block - (1 - masked_share) * mlp
    around = 2 * _FP32 * config.embedding_width
    if size == _FP32 or has_dropout:  # a mask of each type of layer instead of bounds
        around += len(set(config.layer_types)) * row_length * (1 + size)
    # Logits and two arrays of fp32, and the gradient that is stored in the dtype of the products.
    logits = masked_share * config.vocab_size * (2 * _FP32 + (2 * size if size < _FP32 else 0))
    return blocks + around + max(logits, 2 * block if checkpointing else block)
