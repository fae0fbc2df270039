"""The position-wise parts of an encoder: normalization, dropout, the MLP, and embeddings.

Sinusoids and rotary angles are computed in each forward pass and not stored in a table: a buffer
would have to be saved, moved and limited in length, and computing the angles costs less than one
row of a matrix product.

T tokens, D width, F inner width, H heads, K head size, E width of the embeddings (``...`` any
leading dimensions).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.model.config import Activation, EncoderConfig
from maskwright.model.fused import drop, look_up, normalize


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


def rotary_frequencies(head_size: int, theta: float, device: torch.device | str = "cpu") -> Tensor:
    """Return the angle per position of each pair of dimensions of a head: [K / 2] in fp32."""
    steps = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    return 1.0 / (theta ** (steps / head_size))


def rotary_angles(positions: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each [T, 1, K / 2] in fp32, for `rotate`.

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; the two
    halves of a head are the real and the imaginary parts ("rotate half" in transformers).
    """
    frequencies = rotary_frequencies(head_size, theta, positions.device)
    angles = (positions[:, None].float() * frequencies).unsqueeze(1)
    return angles.cos(), angles.sin()


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Return sines, then cosines, of descending frequencies: [T] -> [T, E].

    Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() / (10_000.0 ** (steps / size))
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Table(nn.Embedding):
    """``weight[ids]``: [...] -> [..., E], with `look_up`."""

    def __init__(self, rows: int, size: int, padding_idx: int | None = None) -> None:
        weight = torch.empty(rows, size)
        if not weight.is_meta:  # there it would import torch._dynamo: 2 s
            weight.normal_()
        super().__init__(rows, size, padding_idx, _weight=weight)

    def forward(self, input: Tensor) -> Tensor:
        return look_up(self.weight, input, self.padding_idx)


class Embeddings(nn.Module):
    """``dropout(norm(word + position + token_type))``: [T] -> [T, E].

    Devlin et al., "BERT", 2019. The configuration selects the parts.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.word = Table(config.vocab_size, size, config.pad_token_id)
        learned, types = config.positions == "learned", config.type_vocab_size
        self.position = Table(config.max_position_embeddings, size) if learned else None
        self.token_type = Table(types, size) if types else None
        self.sinusoidal = config.positions == "sinusoidal"
        self.norm = build_norm(config, size) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.embedding_dropout)

    def forward(
        self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        x = self.word(input_ids)
        if self.token_type is not None:
            types = self.token_type.weight[0]  # default: type 0 for all tokens
            x = x + (types if token_type_ids is None else self.token_type(token_type_ids))
        if self.position is not None:
            x = x + self.position(positions)
        if self.sinusoidal:
            x = x + sinusoids(positions, x.shape[-1]).to(x.dtype)
        return self.dropout(self.norm(x))
