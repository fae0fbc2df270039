"""Parameter counts and FLOPs per token, computed from the configuration alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from maskwright.model.config import EncoderConfig
from maskwright.model.masked_lm import MaskedLanguageModel, Network

_PARTS = {"final_norm": "blocks", "project": "embeddings", "relative": "embeddings"}


@dataclass(frozen=True)
class ParameterCount:
    """Numbers of parameters; a tied decoder counts with the embeddings."""

    embeddings: int
    blocks: int
    head: int

    @property
    def total(self) -> int:
        return self.embeddings + self.blocks + self.head


def count_parameters(
    config: EncoderConfig, kind: Callable[[EncoderConfig], Network] = MaskedLanguageModel
) -> ParameterCount:
    """Return the numbers of parameters, counted on the meta device without allocation."""
    with torch.device("meta"):
        model = kind(config)
    counts = {"embeddings": 0, "blocks": 0, "head": 0}
    for name, parameter in model.named_parameters():
        part = name.split(".")[1] if name.startswith("encoder.") else "head"
        counts[_PARTS.get(part, part)] += parameter.numel()
    return ParameterCount(**counts)


def count_flops_per_token(
    config: EncoderConfig, segment_length: float, masked_share: float, pair_share: float = 0.0
) -> float:
    """Return the floating-point operations of a training step (forward and backward) per token.

    Only matrix products count: 2 forward and 4 backward per weight and token, and the same for
    scores and values of attention (Kaplan et al. 2020; Hoffmann et al. 2022, appendix F). The heads
    and the part of the last block after attention process only masked tokens and pairs. Relative
    positions add two products with the vectors of all distances; their projections, once a layer
    for all tokens of a step, are not counted.

    Args:
        config: the architecture.
        segment_length: the mean number of tokens that a token attends to in a global layer.
        masked_share: the share of tokens that reach the head and the end of the last block.
        pair_share: pairs per token; the [CLS] of each pair reaches its head and that end.
    """
    size, inner, width = config.hidden_size, config.intermediate_size, config.embedding_width
    end = size**2 + (3 if config.gated_mlp else 2) * size * inner  # weights after attention
    head = _count_head(config)
    weights = config.num_hidden_layers * (3 * size**2 + end)
    weights += size * width if width != size else 0  # the projection of the embeddings
    weights += masked_share * head + pair_share * size * (size + 2)
    weights -= (1 - masked_share - pair_share) * end
    seen = 0.0
    for kind in config.layer_types:
        window = config.window(kind)
        seen += segment_length if window is None else min(segment_length, 2 * window + 1)
    if config.positions == "relative":
        seen += config.num_hidden_layers * (2 * segment_length + 1)
    return 6 * weights + 12 * size * seen


def count_token_head_flops_per_token(config: EncoderConfig, segment_length: float) -> float:
    """Return the FLOPs per token with a head that has one output for every token (ELECTRA)."""
    size = config.hidden_size
    everywhere = count_flops_per_token(config, segment_length, 1.0)
    return everywhere + 6 * (size * (size + 1) - _count_head(config))


def _count_head(config: EncoderConfig) -> int:
    """Return the number of weights of a masked-language-model head."""
    size, width = config.hidden_size, config.embedding_width
    inner = config.prediction_head_size
    transform = size * width if config.head_transform else (size + width) * inner
    return transform + width * config.vocab_size
