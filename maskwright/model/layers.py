"""The position-wise parts of a block: normalization, dropout and the MLP.

T tokens, D width, F inner width (``...`` any leading dimensions).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.model.config import Activation, EncoderConfig
from maskwright.model.fused import drop, normalize


class RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x^2) + eps)``: [..., D] -> [..., D], computed in fp32.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, self.weight, self.eps)


def build_norm(config: EncoderConfig, size: int | None = None) -> nn.Module:
    """Return the norm of this architecture, over ``hidden_size`` or another `size`."""
    size = config.hidden_size if size is None else size
    if config.norm == "rmsnorm":
        return RMSNorm(size, config.norm_eps)
    return nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)


class Dropout(nn.Module):
    """``drop(x)`` in training, ``x`` otherwise: [...] -> [...]."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.probability) if self.training else x


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu,
    "relu2": _relu_squared,
    "silu": F.silu,
}


class MLP(nn.Module):
    """``output(dropout(act(input(x))))``: [T, D] -> [T, F] -> [T, D]."""

    inputs = 1  # matrices in the weight of `input`

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.activate = ACTIVATIONS[config.hidden_act]
        self.input = nn.Linear(size, self.inputs * inner, bias=bias)
        self.dropout = Dropout(config.mlp_dropout)
        self.output = nn.Linear(inner, size, bias=config.mlp_output_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(self.activate(self.input(x))))


class GatedMLP(MLP):
    """``output(dropout(act(a) * b))`` with ``a, b = input(x)``: [T, D] -> [T, F] -> [T, D].

    Shazeer, "GLU Variants Improve Transformer", 2020. The rows of ``input.weight`` [2 F, D] are
    those of a (activated), then b.
    """

    inputs = 2

    def forward(self, x: Tensor) -> Tensor:
        activated, gate = self.input(x).chunk(2, dim=-1)
        # On a CPU, an activation of a non-contiguous half takes twice as long.
        return self.output(self.dropout(self.activate(activated.contiguous()) * gate))
