"""``softmax(q k^T / sqrt(K)) v`` inside each segment: one function, four ways to compute it.

T tokens, H heads, K head size; R rows of L tokens. Every backend gives the same numbers; the
reference is the one to read.

Multi-head self-attention. T tokens, D width, H heads, K head size (D = H K).
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.config import AttentionBackend, EncoderConfig
from maskwright.model.embeddings import rotate
from maskwright.model.layers import RMSNorm, drop

# Gradients of fused attention in bf16 take a CPU 4.5 times as long as plain products do in rows of
# 64, 3 times in rows of 128, 1.5 times in rows of this length (two cores with AMX, torch 2.13).
_LONGEST_ROW_FOR_PRODUCTS = 256


@dataclass(frozen=True)
class LayerContext:
    """What all layers of one type (global or local) share in one forward pass.

    Attributes:
        context: the segments.
        window: how many tokens to each side a token sees, inclusive; None = the whole segment.
        backend: how to compute attention, already chosen.
        visible: [R, 1, L, L], `AttentionContext.attention_mask` of that window, where the backend
            needs it.
        angles: cosines and sines [T, 1, K / 2] of the rotary positions, if there are any.
    """

    context: AttentionContext
    window: int | None
    backend: AttentionBackend
    visible: Tensor | None
    angles: tuple[Tensor, Tensor] | None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: AttentionContext,
    window: int | None = None,
    dropout: float = 0.0,
    backend: AttentionBackend = "auto",
    visible: Tensor | None = None,
) -> Tensor:
    """Attention of every token to the tokens of its own segment: [T, H, K] -> [T, H, K].

    Args:
        q, k, v: [T, H, K].
        context: where segments begin and end.
        window: how many tokens to each side a token sees, inclusive; None = the whole segment.
        dropout: probability of dropping an attention probability (0 outside training).
        backend: ``reference`` (dense, slow, obvious), ``products`` (of matrices, row by row),
            ``sdpa`` (torch's fused kernels), ``varlen`` (CUDA in half precision, no padding, no
            dropout) or ``auto``.
        visible: ``context.attention_mask(window)``, if it is computed once for all layers.
    """
    if backend == "auto":
        backend = choose_backend(q.device, q.dtype, dropout, context.row_length)
    if backend == "reference":
        return attend_reference(q, k, v, context, window, dropout)
    if backend == "varlen":
        return attend_varlen(q, k, v, context, window)
    visible = context.attention_mask(window) if visible is None else visible
    over_rows = attend_products if backend == "products" else attend_sdpa
    return over_rows(q, k, v, visible, dropout)


def choose_backend(
    device: torch.device, dtype: torch.dtype, dropout: float, row_length: int
) -> AttentionBackend:
    """The fastest that runs: it depends on the device, and on whether gradients are wanted."""
    half = dtype in (torch.float16, torch.bfloat16)
    if device.type == "cuda" and half and dropout == 0:
        return "varlen"
    if device.type == "cpu" and torch.is_grad_enabled():
        short = row_length <= _LONGEST_ROW_FOR_PRODUCTS
        if dropout > 0 or (half and short):  # no fused kernel on a CPU drops anything
            return "products"
    return "sdpa"


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: AttentionContext,
    window: int | None,
    dropout: float,
) -> Tensor:
    """One dense [T, T] table of who sees whom, and a softmax in fp32."""
    place = torch.arange(len(q), device=q.device)
    row, segment = place // context.row_length, context.segment_ids
    visible = (row[:, None] == row[None, :]) & (segment[:, None] == segment[None, :])
    if window is not None:
        visible &= (place[:, None] - place[None, :]).abs() <= window
    if context.is_causal:
        visible &= place[None, :] <= place[:, None]
    scores = torch.einsum("qhk,shk->hqs", q.float(), k.float()) / q.shape[-1] ** 0.5
    probabilities = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    probabilities = drop(probabilities, dropout)
    return torch.einsum("hqs,shk->qhk", probabilities, v.float()).to(q.dtype)


def attend_products(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, dropout: float) -> Tensor:
    """Products of whole rows, with `visible` [R, 1, L, L] as the mask."""
    q, k, v = (_to_rows(x, visible) for x in (q, k, v))
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    scores = scores.add_(visible.to(q.dtype).log())  # 0 or -inf; a CPU adds faster than it fills
    return _from_rows(drop(scores.softmax(-1), dropout) @ v)


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, dropout: float) -> Tensor:
    """torch's fused attention over rows, with `visible` [R, 1, L, L] as its mask."""
    q, k, v = (_to_rows(x, visible) for x in (q, k, v))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=dropout)
    return _from_rows(attended)


def _to_rows(x: Tensor, visible: Tensor) -> Tensor:
    """[T, H, K] -> [R, H, L, K]."""
    return x.unflatten(0, (visible.shape[0], visible.shape[-1])).transpose(1, 2)


def _from_rows(x: Tensor) -> Tensor:
    """[R, H, L, K] -> [T, H, K]."""
    return x.transpose(1, 2).flatten(0, 1)


def attend_varlen(
    q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, window: int | None
) -> Tensor:
    """Flash attention over segments of any length; CUDA, fp16 or bf16."""
    from torch.nn.attention.varlen import varlen_attn

    bounds, longest = context.cu_seqlens, context.max_seqlen
    before = -1 if window is None else window
    # Seven positional arguments and window_size only: the rest of the signature still moves.
    attended = varlen_attn(
        *(q, k, v, bounds, bounds, longest, longest),
        window_size=(before, 0 if context.is_causal else before),
    )
    return cast(Tensor, attended)


class SelfAttention(nn.Module):
    """``output(attend(q, k, v))`` with q, k, v from one fused projection: [T, D] -> [T, D].

    Vaswani et al., "Attention Is All You Need", 2017. The rows of ``qkv.weight`` [3 D, D] are
    those of q, then k, then v, head by head. With `wanted` [W], only those tokens: [W, D].
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, bias = config.hidden_size, config.attention_bias
        self.heads_and_size = (config.num_attention_heads, config.head_size)
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(size, 3 * size, bias=bias)
        self.q_norm = RMSNorm(config.head_size, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_size, config.norm_eps) if config.qk_norm else None
        self.output = nn.Linear(size, size, bias=bias)

    def forward(self, x: Tensor, layer: LayerContext, wanted: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, *self.heads_and_size)).unbind(1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if layer.angles is not None:
            q, k = rotate(q, layer.angles), rotate(k, layer.angles)
        dropout = self.dropout if self.training else 0.0
        attended = attend(
            q, k, v, layer.context, layer.window, dropout, layer.backend, layer.visible
        )
        attended = attended.flatten(1)
        return self.output(attended if wanted is None else attended.index_select(0, wanted))
