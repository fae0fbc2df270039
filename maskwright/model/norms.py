"""Normalization of token vectors. T tokens, D width (``...`` any leading dimensions)."""

from typing import Any

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
        if torch.compiler.is_compiling():  # which fuses the plain formula better than we can
            return normalise_plainly(x, self.weight, self.eps)
        return _RootMeanSquare.apply(x, self.weight, self.eps)


def normalise_plainly(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The formula of `RMSNorm`, which goes over x twice as often, forward and backward."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


class _RootMeanSquare(torch.autograd.Function):
    """For ``s = 1 / sqrt(mean(x^2) + eps)``, ``n = s x``: ``dx = s (w dy - n mean(w dy n))``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        normed = (wide * scale).to(x.dtype)
        ctx.save_for_backward(normed, scale, weight)
        return weight * normed

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        grad = grad_outputs[0].float()
        along = (grad * normed).flatten(0, -2)
        mean = (along @ weight.float()).view_as(scale).div_(len(weight))
        through = (grad * weight).addcmul_(normed.float(), mean, value=-1).mul_(scale)
        return through.to(normed.dtype), along.sum(0).to(weight.dtype), None


def build_norm(config: EncoderConfig, size: int | None = None) -> nn.Module:
    """The norm that this architecture uses everywhere, over ``hidden_size`` or another `size`."""
    size = config.hidden_size if size is None else size
    if config.norm == "rmsnorm":
        return RMSNorm(size, config.norm_eps)
    return nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)
