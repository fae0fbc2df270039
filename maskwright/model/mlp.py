"""The position-wise part of a block. T tokens, D width, F inner width."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.model.config import Activation, EncoderConfig
from maskwright.model.dropout import Dropout


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
    """``output(act(input(x)))``: [T, D] -> [T, F] -> [T, D]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.activate = ACTIVATIONS[config.hidden_act]
        self.input = nn.Linear(size, inner, bias=bias)
        self.dropout = Dropout(config.mlp_dropout)
        self.output = nn.Linear(inner, size, bias=config.mlp_output_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(self.activate(self.input(x))))


class GatedMLP(nn.Module):
    """``output(act(a) * b)`` with a, b the halves of one fused projection: [T, D] -> [T, D].

    Shazeer, "GLU Variants Improve Transformer", 2020. The rows of ``input.weight`` [2 F, D] are
    those of a (activated), then b.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.activate = ACTIVATIONS[config.hidden_act]
        self.input = nn.Linear(size, 2 * inner, bias=bias)
        self.dropout = Dropout(config.mlp_dropout)
        self.output = nn.Linear(inner, size, bias=config.mlp_output_bias)

    def forward(self, x: Tensor) -> Tensor:
        activated, gate = self.input(x).chunk(2, dim=-1)
        # A CPU computes a function of half rows twice as slowly where they lie.
        return self.output(self.dropout(self.activate(activated.contiguous()) * gate))
