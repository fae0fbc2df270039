"""Fast paths with gradients written by hand, each beside the plain formula that it equals.

A plain formula is what the compiler is given, which fuses it better, and what the tests compare
with. T tokens, M predictions, H heads, K head size, V vocabulary (``...`` any leading dimensions).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 2**16  # resolution of the dropout probability: each draw has 16 bits


def normalize(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return ``weight * x / sqrt(mean(x^2) + eps)``: [..., D] -> [..., D], computed in fp32.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    if torch.compiler.is_compiling():
        return normalize_plainly(x, weight, eps)
    return _RootMeanSquare.apply(x, weight, eps)


def normalize_plainly(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute `normalize` by its plain formula, which reads x twice as often."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


class _RootMeanSquare(torch.autograd.Function):
    """For ``n = s x``, ``s = 1 / rms(x)``: ``dx = s (w dy - n mean(w dy n))``."""

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


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each head of `x` [T, H, K] by the `angles` of its token, in fp32 at least."""
    if torch.compiler.is_compiling():
        return rotate_plainly(x, *angles)
    return _Rotation.apply(x, *angles)


def rotate_plainly(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return ``(real + i imaginary) (cos + i sin)``."""
    real, imaginary = x.chunk(2, dim=-1)
    rotated = (real * cosines - imaginary * sines, imaginary * cosines + real * sines)
    return torch.cat(rotated, dim=-1).to(x.dtype)


class _Rotation(torch.autograd.Function):
    """`rotate_plainly` in fewer passes over x; backward rotates by the negative angles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return _rotate_once(x, cosines, sines, 1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return _rotate_once(grad_outputs[0], *ctx.saved_tensors, direction=-1), None, None


def _rotate_once(x: Tensor, cosines: Tensor, sines: Tensor, direction: int) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, cosines.dtype))
    real, imaginary = wide.chunk(2, dim=-1)
    rotated = torch.empty(wide.shape, dtype=wide.dtype, device=x.device)
    new_real, new_imaginary = rotated.chunk(2, dim=-1)
    torch.mul(real, cosines, out=new_real).addcmul_(imaginary, sines, value=-direction)
    torch.mul(imaginary, cosines, out=new_imaginary).addcmul_(real, sines, value=direction)
    return rotated.to(x.dtype)


def look_up(table: Tensor, ids: Tensor, padding_id: int | None = None) -> Tensor:
    """Return the rows of a table [V, E] by their `ids` [...]: [..., E].

    The gradients of a row are added in the order of `ids`, whatever the number of threads. On a
    CPU, neither ``table[ids]`` nor a compiled ``F.embedding`` does this: both add with atomics, so
    that two runs with two threads have different bits.

    Args:
        padding_id: the row that gets no gradient.
    """
    is_trained = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    if is_trained and table.device.type == "cpu":
        return _look_up_in_graph(table, ids, -1 if padding_id is None else padding_id)
    return F.embedding(ids, table, padding_id)


# Opaque to the compiler, which would write the gradient anew.
@torch.library.custom_op("maskwright::look_up", mutates_args=())
def _look_up_in_graph(table: Tensor, ids: Tensor, padding_id: int) -> Tensor:
    return F.embedding(ids, table)


@_look_up_in_graph.register_fake
def _(table: Tensor, ids: Tensor, padding_id: int) -> Tensor:
    return table.new_empty(*ids.shape, table.shape[1])


@torch.library.custom_op("maskwright::sum_by_row", mutates_args=())
def _sum_by_row(vectors: Tensor, ids: Tensor, num_rows: int, padding_id: int) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(vectors, ids, num_rows, padding_id, False)


@_sum_by_row.register_fake
def _(vectors: Tensor, ids: Tensor, num_rows: int, padding_id: int) -> Tensor:
    return vectors.new_empty(num_rows, vectors.shape[-1])


def _keep_ids(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    table, ids, padding_id = inputs
    ctx.save_for_backward(ids)
    ctx.num_rows, ctx.padding_id = len(table), padding_id


def _look_up_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    (ids,) = ctx.saved_tensors
    return _sum_by_row(gradient, ids, ctx.num_rows, ctx.padding_id), None, None


_look_up_in_graph.register_autograd(_look_up_backward, setup_context=_keep_ids)


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


def sum_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses and the number of correct predictions, [] and [], in fp32.

    Rows of `logits` [M, V] count that have a label [M] other than -100. A prediction is correct if
    no other class scores higher than the label.
    """
    if torch.compiler.is_compiling():
        return sum_cross_entropy_plainly(logits, labels)
    return _SumCrossEntropy.apply(logits, labels)


def sum_cross_entropy_plainly(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `sum_cross_entropy` by the plain formula, which reads the logits twice as often."""
    used = labels >= 0
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, reduction="sum")
    scores = logits.detach()
    own = scores.gather(1, labels.clamp_min(0)[:, None])
    return loss, ((own[:, 0] == scores.amax(-1)) & used).sum()


class _SumCrossEntropy(torch.autograd.Function):
    """``sum(log(sum(exp(x))) - x[label])``, whose gradient is ``softmax(x) - one_hot(label)``.

    Second derivatives are not supported.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        wide = logits.float()
        used = (labels >= 0)[:, None]
        classes = labels.clamp_min(0)[:, None]
        own, top = wide.gather(1, classes), wide.amax(-1, keepdim=True)
        gradient = (wide - top).exp_()
        total = gradient.sum(-1, keepdim=True)
        loss = torch.where(used, total.log() + top - own, 0.0).sum()
        num_correct = ((own == top) & used).sum()
        gradient.mul_(used / total).scatter_add_(1, classes, -used.float())
        ctx.save_for_backward(gradient.to(logits.dtype))
        ctx.mark_non_differentiable(num_correct)
        return loss, num_correct

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0].to(gradient.dtype), None
