"""The position-wise parts of a block: normalization, dropout and the MLP.

T tokens, D width, F inner width (``...`` any leading dimensions).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.model.config import Activation, EncoderConfig

_STEPS = 2**16  # resolution of the dropout probability: each draw has 16 bits


class RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x^2) + eps)``: [..., D] -> [..., D], computed in fp32.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # the compiler fuses the plain formula better
            return normalize_plainly(x, self.weight, self.eps)
        return _RootMeanSquare.apply(x, self.weight, self.eps)


def normalize_plainly(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute `RMSNorm` by its plain formula, which reads x twice as often as the fused one."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


class _RootMeanSquare(torch.autograd.Function):
    """Fused `RMSNorm`; for ``n = s x``, ``s = 1 / rms(x)``: ``dx = s (w dy - n mean(w dy n))``."""

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


def drop(x: Tensor, probability: float) -> Tensor:
    """Return, for each element, 0 with this probability, else ``x / (1 - probability)``.

    Srivastava et al., "Dropout", 2014. The dropped elements are a function of the state of torch's
    generator, which advances. torch's own dropout draws in a single thread on a CPU, 10 ns per
    element, which takes an eighth of a training step of BERT.
    """
    if probability == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    draw = draw_in_graph if torch.compiler.is_compiling() else draw_factors
    seed = torch.randint(2**62, ())
    return (x * draw(seed, x.shape, probability)).to(x.dtype)


def draw_factors(seed: Tensor, shape: Sequence[int], probability: float) -> Tensor:
    """Draw factors 0 or ``1 / (1 - p)`` in fp32; p is `probability` as a multiple of 2^-16.

    Args:
        seed: [] int64; the factors are a function of it.
    """
    limit, size = min(round(_STEPS * probability), _STEPS - 1), math.prod(shape)
    words = np.random.SFC64(int(seed)).random_raw(-(-size // 4))
    bits = torch.from_numpy(words.view(np.int16)[:size])
    factors = bits.float().view(shape)
    torch.ge(factors, limit - _STEPS // 2, out=factors)
    return factors.mul_(_STEPS / (_STEPS - limit))


# A custom operator is opaque to the compiler, which would merge two calls with equal arguments.
# The random seed argument prevents that.
draw_in_graph = torch.library.custom_op("maskwright::draw_factors", draw_factors, mutates_args=())


@draw_in_graph.register_fake
def _(seed: Tensor, shape: Sequence[int], probability: float) -> Tensor:
    return torch.empty(shape)


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
