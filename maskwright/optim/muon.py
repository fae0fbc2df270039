"""Muon: orthogonalized momentum (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

torch's own Muon orthogonalizes in bf16, which is 38 times slower than fp32 on a CPU without bf16
units. Here the precision is that of the run, matrices of one shape are orthogonalized as one
batch, and stacked matrices (queries, keys and values in one weight) are split first.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maskwright.distributed.parallel import UNSHARDED, Exchange, Sharding
from maskwright.optim.eager import EagerOptimizer

# Quintic iteration x -> a x + b x^3 + c x^5 for singular values x, from the source above.
_A, _B, _C = 3.4445, -4.7750, 2.0315
# Above this ratio of columns to rows, iterating on the Gram matrix takes fewer products. In fp32, 5
# iterations have a rounding error of 1e-4 of the update, and each further one multiplies it by 12.
_WIDE, _MAX_STEPS_ON_GRAM = 1.5, 5
_TINY = 1e-8
# One operator for many tensors; torch has no public name for them.
_multiply_all: Any = vars(torch)["_foreach_mul_"]
_add_to_all: Any = vars(torch)["_foreach_add_"]


def orthogonalize(matrices: Tensor, num_steps: int, dtype: torch.dtype) -> Tensor:
    """Move all singular values towards 1 by Newton-Schulz iterations.

    Args:
        matrices: [B, m, n].
        dtype: precision of the products.

    Returns:
        [B, m, n] in the dtype of `matrices`; singular values are in about 0.7..1.2.
    """
    x = matrices.to(dtype)
    if tall := x.shape[1] > x.shape[2]:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    on_gram = uses_gram(x.shape[1], x.shape[2], num_steps, dtype)
    x = (iterate_on_gram if on_gram else iterate)(x, num_steps)
    return (x.mT if tall else x).to(matrices.dtype)


def uses_gram(rows: int, columns: int, num_steps: int, dtype: torch.dtype) -> bool:
    """Return True if `iterate_on_gram` takes fewer products and is precise enough."""
    exact = dtype is torch.float32 and num_steps <= _MAX_STEPS_ON_GRAM
    return exact and columns > _WIDE * rows


def iterate(x: Tensor, num_steps: int) -> Tensor:
    """Apply ``x <- (a + b x x^T + c (x x^T)^2) x`` `num_steps` times to [B, m, n]."""
    for _ in range(num_steps):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, _evaluate(gram), x, beta=_A)
    return x


def iterate_on_gram(x: Tensor, num_steps: int) -> Tensor:
    """Return the same as `iterate`, with all but two products square: [B, m, m].

    Each iteration multiplies x from the left by a polynomial p of its Gram matrix g, and p commutes
    with g: so g becomes ``p g p``, and x is multiplied once, by the product of all p.
    """
    gram, whole = torch.bmm(x, x.mT), None
    for step in range(num_steps):
        polynomial = _evaluate(gram)
        polynomial.diagonal(dim1=1, dim2=2).add_(_A)
        whole = polynomial if whole is None else torch.bmm(polynomial, whole)
        if step < num_steps - 1:
            gram = torch.bmm(torch.bmm(polynomial, gram), polynomial)
    return x if whole is None else torch.bmm(whole, x)


def _evaluate(gram: Tensor) -> Tensor:
    """Return ``b g + c g^2``."""
    return torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)


@dataclass(frozen=True)
class _SameShape:
    """All weights of one shape, and their state, whose tensors are one block of memory each.

    Attributes:
        parameters: weights [S m, n]; each has S matrices.
        counts: the S of each weight.
        shape: (m, n).
        exchange: how directions reach the rank that orthogonalizes them, and updates all ranks.
        momentum: [rows of all parameters on this rank, n].
        row_square: [B, m, 1] for `_normalize_rows`, of all ranks; None: it is not called.
    """

    parameters: list[Tensor]
    counts: list[int]
    exchange: Exchange
    shape: tuple[int, int]
    momentum: Tensor
    row_square: Tensor | None

    @property
    def is_tall(self) -> bool:
        return self.shape[0] > self.shape[1]

    @property
    def scale(self) -> float:
        """The size of an update, as a factor of the learning rate."""
        return max(1.0, self.shape[0] / self.shape[1]) ** 0.5


class Muon(EagerOptimizer):
    """Muon with decoupled weight decay, for 2-D weights of hidden layers.

    A step has as many operators for 2 layers as for 24: gradients of one shape are joined, updated
    as one tensor, and added to all their weights by one operator.

    Args:
        parameters: weights [out, in].
        num_stacked: the number of matrices that are stacked in each weight, along ``out``.
        lr: size of a step; an orthogonal update is scaled by ``sqrt(max(1, out / in))``.
        beta2: decay of the mean squares that `_normalize_rows` divides by; 0: it is not called.
        sharding: how parameters are sharded over ranks; each rank orthogonalizes its share of the
            matrices (Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv 2502.16982).
        dtype: precision of the orthogonalization.
    """

    slots = ("momentum_buffer", "row_square")

    def __init__(
        self,
        parameters: Sequence[Tensor],
        num_stacked: Sequence[int],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        num_steps: int,
        beta2: float = 0.0,
        sharding: Sharding = UNSHARDED,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([{"params": list(parameters)}], defaults)
        self.num_steps, self.sharding, self.dtype = num_steps, sharding, dtype
        self.beta2, self._counts = beta2, dict(zip(parameters, num_stacked, strict=True))
        self._stacks: dict[tuple[Tensor, ...], list[_SameShape]] = {}

    def forget_layout(self) -> None:
        self._stacks.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update all parameters that have a gradient; a `closure` is not called."""
        (group,) = self.param_groups
        # Tensors if the device decides whether the step changes anything.
        share = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        is_bad = None if self.found_inf is None else self.found_inf.bool()
        lr = share * group["lr"]
        decay = 1 - _in_fp32(lr * group["weight_decay"])
        by_shape: dict[tuple[int, int], list[tuple[_SameShape, Tensor]]] = defaultdict(list)
        for stack in self._find_stacks():
            direction = self._nesterov(stack, group["momentum"], is_bad)
            # Both matrices of an MLP are orthogonalized as one batch: one is transposed.
            wide = direction.mT if stack.is_tall else direction
            by_shape[min(stack.shape), max(stack.shape)].append((stack, wide))
        for entries in by_shape.values():
            stacks, directions = zip(*entries, strict=True)
            joined = directions[0] if len(directions) == 1 else torch.cat(directions)
            updates = orthogonalize(joined, self.num_steps, self.dtype)
            parts = updates.split([len(direction) for direction in directions])
            for stack, update in zip(stacks, parts, strict=True):
                rate = _in_fp32(lr * -stack.scale)
                self._apply(stack, update.mT if stack.is_tall else update, decay, rate, share)

    def _find_stacks(self) -> list[_SameShape]:
        """Return the stacks of all parameters with a gradient; their layout is kept."""
        (group,) = self.param_groups
        updated = tuple(p for p in group["params"] if p.grad is not None)
        if updated not in self._stacks:
            by_shape: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
            for parameter in updated:
                rows = len(parameter) // self._counts[parameter]
                by_shape[rows, parameter.shape[1]].append(parameter)
            self._stacks = {updated: [self._stack(ps, shape) for shape, ps in by_shape.items()]}
        return self._stacks[updated]

    def _stack(self, parameters: list[Tensor], shape: tuple[int, int]) -> _SameShape:
        """Join the state of parameters, zeros where there is none; each keeps a view of its own."""
        counts = [self._counts[parameter] for parameter in parameters]
        states = [self.state[parameter] for parameter in parameters]
        local = self.sharding.local
        momentum = torch.cat(
            [
                local(state.get("momentum_buffer", torch.zeros_like(parameter)))
                for parameter, state in zip(parameters, states, strict=True)
            ]
        )
        sizes = [len(local(parameter)) for parameter in parameters]
        for state, parameter, part in zip(states, parameters, momentum.split(sizes), strict=True):
            state["momentum_buffer"] = self.sharding.wrap(part, parameter)
        exchange = self.sharding.exchange(parameters, shape[0])
        if not self.beta2:
            return _SameShape(parameters, counts, exchange, shape, momentum, None)
        square = torch.cat(
            [
                state.get("row_square", momentum.new_zeros(count, shape[0], 1))
                for count, state in zip(counts, states, strict=True)
            ]
        )
        for state, part in zip(states, square.split(counts), strict=True):
            state["row_square"] = part
        return _SameShape(parameters, counts, exchange, shape, momentum, square)

    def _nesterov(self, stack: _SameShape, momentum: float, is_bad: Tensor | None) -> Tensor:
        """Add the gradients to the momentum; return the directions [K, m, n] of own matrices."""
        gradients = [p.grad for p in stack.parameters if p.grad is not None]
        gradient, buffer = torch.cat([*map(self.sharding.local, gradients)]), stack.momentum
        if is_bad is not None:
            gradient = torch.where(is_bad, buffer, gradient)
        buffer.lerp_(gradient, 1 - momentum)
        direction = gradient.lerp_(buffer, momentum)
        return stack.exchange.collect(direction).view(-1, *stack.shape)

    def _apply(
        self,
        stack: _SameShape,
        update: Tensor,
        decay: Tensor | float,
        rate: Tensor | float,
        share: Tensor | float,
    ) -> None:
        """Add the update [K, m, n] of own matrices to the weights of a stack, after their decay."""
        exchange, square = stack.exchange, stack.row_square
        if square is not None:
            update = self._normalize_rows(square[exchange.own], update, share)
            exchange.complete(square)
        rows = exchange.deliver((update * rate).reshape(-1, stack.shape[1]))
        weights = [*map(self.sharding.local, stack.parameters)]
        _multiply_all(weights, decay)
        _add_to_all(weights, rows.split([*map(len, weights)]))

    def _normalize_rows(self, row_square: Tensor, update: Tensor, share: Tensor | float) -> Tensor:
        """Divide each row by the root of its mean square over the steps; keep the norm of a matrix.

        A row is a neuron, so the updates of all neurons have about the same size: NorMuon, Li et
        al. 2025, arXiv 2510.05491.

        Args:
            row_square: [B, m, 1], updated in place.
            update: [B, m, n], orthogonal.
            share: 0 if the step changes nothing, 1 otherwise.
        """
        square = update.square().mean(-1, keepdim=True)
        row_square.lerp_(square, (1 - self.beta2) * share)
        scaled = update / (row_square.sqrt() + _TINY)
        before, after = update.norm(dim=(1, 2), keepdim=True), scaled.norm(dim=(1, 2), keepdim=True)
        return scaled * (before / (after + _TINY))


def _in_fp32(rate: Tensor | float) -> Tensor | float:
    """Round a rate, which is computed in fp64 on a CPU, as a weight is."""
    return rate.float() if isinstance(rate, Tensor) else rate
