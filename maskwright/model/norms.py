"""Normalization of token vectors. T tokens, D width (``...`` any leading dimensions)."""

import torch
from torch import Tensor, nn

from maskwright.model.config import EncoderConfig


class RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x^2) + eps)``: [..., D] -> [..., D], computed in fp32.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def build_norm(config: EncoderConfig, size: int | None = None) -> nn.Module:
    """The norm that this architecture uses everywhere, over ``hidden_size`` or another `size`."""
    size = config.hidden_size if size is None else size
    if config.norm == "rmsnorm":
        return RMSNorm(size, config.norm_eps)
    return nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)
