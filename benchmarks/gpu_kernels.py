"""Parts of a block without concatenations and other attention, for `gpu-variants` to measure.

The gradients of `chunk` and `unbind` are concatenations, which torch's compiler computes in one
kernel that evaluates every part for each element (pytorch#179091). Here such a gradient is two
matrix products, or one operator: a Triton kernel on a GPU, its plain formula on a CPU. What is
faster than the model's own way moves to `maskwright.model`; until then nothing there uses it.

T tokens in R rows of L, D width, F inner width, H heads, K head size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from maskwright.attention_context import AttentionContext
from maskwright.model.attention import LayerContext, SelfAttention
from maskwright.model.encoder import Encoder
from maskwright.model.fused import rotate_plainly
from maskwright.model.layers import GatedMLP


def gate_in_two_products(mlp: GatedMLP, x: Tensor) -> Tensor:
    """Compute `GatedMLP.forward` by a product for each half of the weight: [T, D] -> [T, D]."""
    weights = mlp.input.weight.chunk(2)
    biases = (None, None) if mlp.input.bias is None else mlp.input.bias.chunk(2)
    activated, gate = (F.linear(x, *half) for half in zip(weights, biases, strict=True))
    return mlp.output(mlp.dropout(mlp.activate(activated) * gate))


def gate_by_kernel(mlp: GatedMLP, x: Tensor) -> Tensor:
    """Compute `GatedMLP.forward` with GELU, whose backward pass is one kernel: [T, D] -> [T, D]."""
    given = (mlp.activate, mlp.dropout.probability, mlp.output.bias)
    assert given == (F.gelu, 0, None), "the kernel has GELU, no dropout and no bias"
    h = mlp.input(x)
    return _GatedOutput.apply(h, mlp.output.weight.to(h.dtype))


class _GatedOutput(torch.autograd.Function):
    """``y W^T`` with ``y = gelu(a) b``; y is computed again in the backward pass, not stored."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(h, weight)
        a, b = h.chunk(2, dim=-1)
        return F.linear(F.gelu(a) * b, weight)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        (h, weight), (grad,) = ctx.saved_tensors, grad_outputs
        grad_h, y = gate_backward(h, grad @ weight)
        return grad_h, grad.mT @ y


@torch.library.custom_op("maskwright::gate_backward", mutates_args=(), device_types="cuda")
def gate_backward(h: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of h, [T, 2 F], and ``y = gelu(a) b``, for the gradient of y, [T, F]."""
    h, grad = h.contiguous(), grad.contiguous()
    grad_h, y = torch.empty_like(h), torch.empty_like(grad)
    from benchmarks import triton_kernels

    triton_kernels.gate_backward(h, grad, grad_h, y)
    return grad_h, y


@gate_backward.register_kernel("cpu")
def gate_backward_plainly(h: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `gate_backward` by ``gelu(a) = a Φ(a)`` and its derivative ``Φ(a) + a φ(a)``."""
    (a, b), wide = h.float().chunk(2, dim=-1), grad.float()
    share = 0.5 + 0.5 * torch.erf(a * 0.5**0.5)
    density = torch.exp(-0.5 * a * a) / (2 * torch.pi) ** 0.5
    grads = wide * b * (share + a * density), wide * a * share
    return torch.cat(grads, dim=-1).to(h.dtype), (a * share * b).to(grad.dtype)


@gate_backward.register_fake
def _(h: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return h.new_empty(h.shape), grad.new_empty(grad.shape)


def project_by_kernel(
    attention: SelfAttention, x: Tensor, angles: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `SelfAttention._project`, with one kernel each way: q, k and v, each [T, H, K]."""
    assert angles is not None, "the kernel rotates"
    assert attention.q_norm is None, "the kernel has no norm"
    qkv = attention.qkv(x).unflatten(-1, (3, *attention.heads_and_size))
    return _SplitRotation.apply(qkv, *angles)


class _SplitRotation(torch.autograd.Function):
    """[T, 3, H, K] -> q, k, v; the backward pass rotates by the negative angles and joins."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cosines, sines)
        q, k = split_rotated(qkv, cosines, sines)
        return q, k, qkv.select(1, 2)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return join_rotated(*grad_outputs, *ctx.saved_tensors), None, None


@torch.library.custom_op("maskwright::split_rotated", mutates_args=(), device_types="cuda")
def split_rotated(qkv: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k rotated, each [T, H, K], of [T, 3, H, K]."""
    q, k, _ = qkv.contiguous().unbind(1)
    new = torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(k.shape)
    from benchmarks import triton_kernels

    triton_kernels.rotate((q, k), new, (cosines, sines), sign=1)
    return new


@split_rotated.register_kernel("cpu")
def split_rotated_plainly(qkv: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `split_rotated` by the plain formula of a rotation."""
    q, k, _ = qkv.unbind(1)
    return rotate_plainly(q, cosines, sines), rotate_plainly(k, cosines, sines)


@split_rotated.register_fake
def _(qkv: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    tokens, _, heads, size = qkv.shape
    return qkv.new_empty(tokens, heads, size), qkv.new_empty(tokens, heads, size)


@torch.library.custom_op("maskwright::join_rotated", mutates_args=(), device_types="cuda")
def join_rotated(q: Tensor, k: Tensor, v: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return [T, 3, H, K] of q and k, rotated by the negative angles, and v, each [T, H, K]."""
    old = (q.contiguous(), k.contiguous(), v.contiguous())
    joined = q.new_empty(len(q), 3, *q.shape[1:])
    from benchmarks import triton_kernels

    triton_kernels.rotate(old, joined.unbind(1), (cosines, sines), sign=-1)
    return joined


@join_rotated.register_kernel("cpu")
def join_rotated_plainly(q: Tensor, k: Tensor, v: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Compute `join_rotated` by the plain formula of a rotation."""
    back = (cosines, -sines)
    return torch.stack((rotate_plainly(q, *back), rotate_plainly(k, *back), v), dim=1)


@join_rotated.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    return q.new_empty(len(q), 3, *q.shape[1:])


_layer_context = Encoder._layer_context


def add_block_mask(encoder: Encoder, context: AttentionContext, *rest: Any) -> LayerContext:
    """Compute `Encoder._layer_context`, with FlexAttention's mask for all layers of one type."""
    layer = _layer_context(encoder, context, *rest)
    rows = context.segment_ids.view(-1, context.row_length)
    assert not context.is_causal

    def attends(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = rows[row, query] == rows[row, key]
        return same if layer.window is None else same & ((query - key).abs() <= layer.window)

    size = (len(rows), None, context.row_length, context.row_length)
    mask: Any = create_block_mask(attends, *size, device=rows.device)
    return replace(layer, attention_mask=mask)


def attend_flex(q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, *rest: Any) -> Tensor:
    """Compute `attend` by FlexAttention, which the compiler makes a kernel of: [T, H, K].

    Args:
        rest: the other arguments of `attend`; the mask is that of `add_block_mask`.
    """
    mask, length = rest[3], context.row_length
    q, k, v = (x.unflatten(0, (-1, length)).transpose(1, 2) for x in (q, k, v))
    return cast(Tensor, flex_attention(q, k, v, block_mask=mask)).transpose(1, 2).flatten(0, 1)


@contextmanager
def flash_attention_4() -> Iterator[None]:
    """Let torch's flash attention be that of the package flash-attn-4 within this context.

    Raises:
        ImportError: the package, or torch's switch for it, is not installed.
    """
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

    activate_flash_attention_impl("FA4")
    try:
        yield
    finally:
        restore_flash_attention_impl()
