"""Functions of a token's position: rotary angles and sinusoids.

Both are computed from the positions where they are needed. A table would be a buffer to save, to
move and to outgrow; the angles of one batch cost less than one row of one matrix product.

T tokens, H heads, K head size, D width.
"""

import torch
from torch import Tensor


def rotary_frequencies(head_size: int, theta: float, device: torch.device | str = "cpu") -> Tensor:
    """[K / 2] in fp32: by how much a step to the right turns each pair of a head."""
    steps = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    return 1.0 / (theta ** (steps / head_size))


def rotary_angles(positions: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [T, 1, K] in fp32, for `rotate`.

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; the two
    halves of a head are the real and the imaginary parts ("rotate half", as transformers has it).
    """
    frequencies = rotary_frequencies(head_size, theta, positions.device)
    angles = positions[:, None].float() * frequencies
    angles = torch.cat((angles, angles), dim=-1).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turns each head of `x` [T, H, K] by its token's `angles`."""
    cosines, sines = angles
    real, imaginary = x.chunk(2, dim=-1)
    turned = x * cosines + torch.cat((-imaginary, real), dim=-1) * sines
    return turned.to(x.dtype)


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """[T] -> [T, D]: sines in the first half, cosines in the second, of falling frequencies.

    Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() / (10_000.0 ** (steps / size))
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
