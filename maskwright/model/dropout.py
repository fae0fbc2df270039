"""Dropout (Srivastava et al., 2014), with random numbers that do not hold a CPU up.

torch draws them on a CPU one by one in one thread, 10 ns each: an eighth of a step of BERT.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

_STEPS = 2**16  # of a probability; each draw has 16 bits


class Dropout(nn.Module):
    """`drop` in training, nothing otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.probability) if self.training else x


def drop(x: Tensor, probability: float) -> Tensor:
    """0 with this probability, else ``x / (1 - probability)``, for each element.

    What is dropped is a function of the state of torch's generator, which moves on.
    """
    if probability == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, probability)
    return (x * draw_factors(x.shape, probability)).to(x.dtype)


def draw_factors(shape: torch.Size, probability: float) -> Tensor:
    """0 or ``1 / (1 - p)``, in fp32, with p the multiple of 1 / 65,536 nearest to `probability`."""
    limit = min(round(_STEPS * probability), _STEPS - 1)
    seed = int(torch.randint(2**62, ()))
    words = np.random.SFC64(seed).random_raw(-(-shape.numel() // 4))
    bits = torch.from_numpy(words.view(np.int16)[: shape.numel()])
    factors = bits.float().view(shape)
    torch.ge(factors, limit - _STEPS // 2, out=factors)
    return factors.mul_(_STEPS / (_STEPS - limit))
