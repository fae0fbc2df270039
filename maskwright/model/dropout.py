"""Dropout (Srivastava et al., 2014), with random numbers that do not hold a CPU up.

torch draws them on a CPU one by one in one thread, 10 ns each: an eighth of a step of BERT.
"""

import math
from collections.abc import Sequence

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
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    draw = draw_in_graph if torch.compiler.is_compiling() else draw_factors
    seed = torch.randint(2**62, ())
    return (x * draw(seed, x.shape, probability)).to(x.dtype)


def draw_factors(seed: Tensor, shape: Sequence[int], probability: float) -> Tensor:
    """0 or ``1 / (1 - p)``, in fp32, with p the multiple of 1 / 65,536 nearest to `probability`.

    Args:
        seed: [] int64; the factors are a function of it.
    """
    limit, size = min(round(_STEPS * probability), _STEPS - 1), math.prod(shape)
    words = np.random.SFC64(int(seed)).random_raw(-(-size // 4))
    bits = torch.from_numpy(words.view(np.int16)[:size])
    factors = bits.float().view(shape)
    torch.ge(factors, limit - _STEPS // 2, out=factors)
    return factors.mul_(_STEPS / (_STEPS - limit))


# To the compiler one call that it does not look into. It would make one of two equal calls, hence
# the seed, which it knows to be random.
draw_in_graph = torch.library.custom_op("maskwright::draw_factors", draw_factors, mutates_args=())


@draw_in_graph.register_fake
def _(seed: Tensor, shape: Sequence[int], probability: float) -> Tensor:
    return torch.empty(shape)
