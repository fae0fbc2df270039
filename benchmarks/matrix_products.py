"""Measure the matrix products of a training step alone: the lower bound of its time.

Each product is timed separately, at its own shape, in the precision of the run, with its operands
in the memory layout of training. T tokens, M masked tokens, D width, F inner width.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from maskwright.model.config import EncoderConfig
from maskwright.optim.muon import uses_gram

_SECONDS_EACH = 0.3  # for which a product is repeated


@dataclass(frozen=True)
class Product:
    """``[batch, m, k] @ [batch, k, n]``, `count` times a step.

    Attributes:
        turned: which operands are transposed views.
    """

    count: int
    batch: int
    m: int
    k: int
    n: int
    turned: tuple[bool, bool] = (False, False)

    @property
    def flops(self) -> int:
        """The floating-point operations a step: a multiplication and an addition each."""
        return 2 * self.count * self.batch * self.m * self.k * self.n

    def measure(self, dtype: torch.dtype) -> float:
        """Return the seconds a step: the median of its repetitions, times their number."""
        left = _draw(self.batch, self.m, self.k, self.turned[0], dtype)
        right = _draw(self.batch, self.k, self.n, self.turned[1], dtype)
        if self.batch == 1:
            left, right = left[0], right[0]
        seconds: list[float] = []
        until = time.perf_counter() + _SECONDS_EACH
        while time.perf_counter() < until or len(seconds) < 3:
            started = time.perf_counter()
            torch.matmul(left, right)
            seconds.append(time.perf_counter() - started)
        return self.count * sorted(seconds)[len(seconds) // 2]


def _draw(batch: int, rows: int, columns: int, turned: bool, dtype: torch.dtype) -> torch.Tensor:
    if turned:
        return torch.randn(batch, columns, rows).to(dtype).mT
    return torch.randn(batch, rows, columns).to(dtype)


def list_linear(count: int, tokens: int, inputs: int, outputs: int) -> Iterator[Product]:
    """Yield the products of a linear layer: forward, backward to input and to weight."""
    yield Product(count, 1, tokens, inputs, outputs, (False, True))
    yield Product(count, 1, tokens, outputs, inputs)
    yield Product(count, 1, outputs, tokens, inputs, (True, False))


def list_step(config: EncoderConfig, tokens: int, row_length: int, masked: int) -> list[Product]:
    """Return the products of forward and backward; only masked tokens pass the last k and v."""
    size, inner = config.hidden_size, config.intermediate_size
    layers, head = config.num_hidden_layers, config.head_size
    gates = 2 if config.gated_mlp else 1
    products = [*list_linear(layers, tokens, size, 3 * size)]
    for count, places in ((layers - 1, tokens), (1, masked)):
        products += list_linear(count, places, size, size)
        products += list_linear(count, places, size, gates * inner)
        products += list_linear(count, places, inner, size)
    rows = tokens // row_length * config.num_attention_heads
    products += [
        Product(2 * layers, rows, row_length, head, row_length, (False, True)),
        Product(2 * layers, rows, row_length, row_length, head),
        Product(2 * layers, rows, row_length, row_length, head, (True, False)),
    ]
    if config.head_transform:
        products += list_linear(1, masked, size, size)
    return [*products, *list_linear(1, masked, size, config.vocab_size)]


def list_orthogonalization(
    config: EncoderConfig, iterations: int, dtype: torch.dtype
) -> list[Product]:
    """Return what Muon multiplies, matrices of one shape together."""
    size, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    squares, gates = 4 * layers, (2 if config.gated_mlp else 1) * layers
    products: list[Product] = []
    for batch, short, long in ((squares, size, size), (gates + layers, size, inner)):
        on_gram = uses_gram(short, long, iterations, dtype)
        wide = 1 if on_gram else iterations
        products += [
            Product(wide, batch, short, long, short, (False, True)),
            Product(4 * iterations - 3 if on_gram else wide, batch, short, short, short),
            Product(wide, batch, short, short, long),
        ]
    return products
