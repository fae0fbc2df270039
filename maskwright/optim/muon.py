"""Muon: orthogonalized momentum (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

torch's own Muon orthogonalizes in bf16, which is 38 times slower than fp32 on a CPU without bf16
units. Here the precision is that of the run, matrices of one shape are orthogonalized as one
batch, and stacked matrices (queries, keys and values in one weight) are split first.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from maskwright.distributed.sharding import UNSHARDED, Sharding
from maskwright.optim.eager import EagerOptimizer

# Quintic iteration x -> a x + b x^3 + c x^5 for singular values x, from the source above.
_A, _B, _C = 3.4445, -4.7750, 2.0315
# Above this ratio of columns to rows, iterating on the Gram matrix takes fewer products. In fp32, 5
# iterations have a rounding error of 1e-4 of the update, and each further one multiplies it by 12.
_WIDE, _MOST_ON_GRAM = 1.5, 5
_TINY = 1e-8

# A weight, the directions of its matrices, and its group.
_Entry = tuple[Tensor, Tensor, dict[str, Any]]


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
    exact = dtype is torch.float32 and num_steps <= _MOST_ON_GRAM
    return exact and columns > _WIDE * rows


def iterate(x: Tensor, num_steps: int) -> Tensor:
    """Apply ``x <- (a + b x x^T + c (x x^T)^2) x`` `num_steps` times to [B, m, n]."""
    for _ in range(num_steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, _evaluate(gram), x, beta=_A)
    return x


def iterate_on_gram(x: Tensor, num_steps: int) -> Tensor:
    """Return the same as `iterate`, with all but two products square: [B, m, m].

    Each iteration multiplies x from the left by a polynomial p of its Gram matrix g, and p commutes
    with g: so g becomes ``p g p``, and x is multiplied once, by the product of all p.
    """
    gram, whole = x @ x.mT, None
    for step in range(num_steps):
        polynomial = _evaluate(gram)
        polynomial.diagonal(dim1=1, dim2=2).add_(_A)
        whole = polynomial if whole is None else polynomial @ whole
        if step < num_steps - 1:
            gram = polynomial @ gram @ polynomial
    return x if whole is None else whole @ x


def _evaluate(gram: Tensor) -> Tensor:
    """Return ``b g + c g^2``."""
    return torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)


class Muon(EagerOptimizer):
    """Muon with decoupled weight decay, for 2-D weights of hidden layers.

    Args:
        parameters: weights [out, in].
        num_stacked: the number of matrices that are stacked in each weight, along ``out``.
        lr: size of a step; an orthogonal update is scaled by ``sqrt(max(1, out / in))``.
        beta2: decay of the mean squares that `_normalize_rows` divides by; 0: it is not called.
        sharding: how parameters are sharded over ranks; every rank gathers the matrices and
            orthogonalizes all of them.
        dtype: precision of the orthogonalization.
    """

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
        groups: dict[int, list[Tensor]] = defaultdict(list)
        for parameter, count in zip(parameters, num_stacked, strict=True):
            groups[count].append(parameter)
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(
            [{"params": group, "num_stacked": n} for n, group in groups.items()], defaults
        )
        self.num_steps, self.sharding, self.dtype = num_steps, sharding, dtype
        self.beta2 = beta2

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update all parameters that have a gradient; a `closure` is not called."""
        # A tensor if the device decides whether the step changes anything.
        share = 1.0 if self.found_inf is None else 1.0 - self.found_inf
        by_shape: dict[tuple[int, ...], list[_Entry]] = defaultdict(list)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    direction = self._nesterov(parameter, group["momentum"])
                    direction = self.sharding.gather(direction)
                    matrices = direction.unflatten(0, (group["num_stacked"], -1))
                    by_shape[tuple(matrices.shape[1:])].append((parameter, matrices, group))
        for (rows, columns), entries in by_shape.items():
            stacked = torch.cat([matrices for _, matrices, _ in entries])
            updates = orthogonalize(stacked, self.num_steps, self.dtype)
            updates = updates.split([len(matrices) for _, matrices, _ in entries])
            scale = max(1.0, rows / columns) ** 0.5
            for (parameter, _, group), update in zip(entries, updates, strict=True):
                if self.beta2:
                    update = self._normalize_rows(parameter, update, share)
                parameter.mul_(1 - share * (group["lr"] * group["weight_decay"]))
                update = update.reshape(parameter.shape) * (share * (-group["lr"] * scale))
                parameter.add_(self.sharding.shard(update, parameter))

    def _normalize_rows(self, parameter: Tensor, update: Tensor, share: Tensor | float) -> Tensor:
        """Divide each row by the root of its mean square over the steps; keep the norm of a matrix.

        A row is a neuron, so the updates of all neurons have about the same size: NorMuon, Li et
        al. 2025, arXiv 2510.05491.

        Args:
            update: [S, m, n], orthogonal.
            share: 0 if the step changes nothing, 1 otherwise.
        """
        state, square = self.state[parameter], update.square().mean(-1, keepdim=True)
        if "row_square" not in state:
            state["row_square"] = torch.zeros_like(square)
        state["row_square"].lerp_(square, (1 - self.beta2) * share)
        scaled = update / (state["row_square"].sqrt() + _TINY)
        before, after = update.norm(dim=(1, 2), keepdim=True), scaled.norm(dim=(1, 2), keepdim=True)
        return scaled * (before / (after + _TINY))

    def _nesterov(self, parameter: Tensor, momentum: float) -> Tensor:
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"]
        if self.found_inf is not None:
            gradient = torch.where(self.found_inf.bool(), buffer, gradient)
        buffer.lerp_(gradient, 1 - momentum)
        return gradient.lerp(buffer, momentum)
