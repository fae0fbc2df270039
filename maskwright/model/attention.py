"""Multi-head self-attention within each segment: one function with four backends, and its layer.

All backends compute the same function; the reference is the simplest.

Relative positions are disentangled attention (He et al., "DeBERTa: Decoding-enhanced BERT with
Disentangled Attention", 2021). A score is the sum of content to content (q k), content to position
(q p_k) and position to content (k p_q), where p_k and p_q are the key and query of the vector of
the distance "query minus key". The vectors are shared by all layers, and the projections are those
of the content (``share_att_key``).

T tokens in R rows of L, W output positions, D width, H heads, K head size (D = H K), P = 2 L + 1
distances from L down to -L, B buckets on each side.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.config import AttentionBackend, EncoderConfig
from maskwright.model.fused import drop, rotate
from maskwright.model.layers import RMSNorm, Table, build_norm


def bucket_distances(distances: Tensor, num_buckets: int, longest: int) -> Tensor:
    """Return the bucket of each distance, from -B to B - 1, int64.

    Distances up to B / 2 have a bucket each; longer ones, up to `longest`, share buckets whose
    widths grow exponentially. Computed in fp32, as in transformers, for equal rounding.
    """
    half, size = num_buckets // 2, distances.abs()
    share = torch.log(size.clamp(min=half) / half) / torch.log(torch.tensor((longest - 1) / half))
    far = (torch.ceil(share * (half - 1)) + half) * distances.sign()
    buckets = torch.where(size <= half, distances.float(), far)
    return buckets.clamp(-num_buckets, num_buckets - 1).long()


class RelativePositions(nn.Module):
    """``norm(embedding(bucket(distance)))`` for the distances from L down to -L: [P, D]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_buckets, self.longest = config.position_buckets, config.max_position_embeddings
        self.embedding = Table(2 * self.num_buckets, config.hidden_size)
        self.norm = build_norm(config)

    def forward(self, row_length: int) -> Tensor:
        device = self.embedding.weight.device
        distances = torch.arange(row_length, -row_length - 1, -1, device=device)
        buckets = bucket_distances(distances, self.num_buckets, self.longest)
        return self.norm(self.embedding(buckets + self.num_buckets))


def score_positions(q: Tensor, k: Tensor, position_q: Tensor, position_k: Tensor) -> Tensor:
    """Return ``q p_k + k p_q`` for each query and key of a row: [R, H, L, L].

    Args:
        q, k: [R, H, L, K].
        position_q, position_k: [P, H, K].
    """
    to_position = q @ position_k.permute(1, 2, 0)
    to_content = k @ position_q.flip(0).permute(1, 2, 0)  # flipped: the key is the row
    return _shift(to_position) + _shift(to_content).mT


def _shift(x: Tensor) -> Tensor:
    """Return ``y[i, j] = x[i, j - i + L]``: [..., L, P] -> [..., L, L], without an index."""
    length = x.shape[-2]
    return x.flatten(-2)[..., length:].unflatten(-1, (length, 2 * length))[..., :length]


def score_positions_reference(
    q: Tensor, k: Tensor, position_q: Tensor, position_k: Tensor, row_length: int
) -> Tensor:
    """Return the same for all pairs of tokens, by definition: [H, T, T]; other rows are arbitrary.

    Args:
        q, k: [T, H, K].
    """
    index = torch.arange(len(q), device=q.device)
    distances = (index[:, None] - index[None, :]).clamp(-row_length, row_length)
    keys, queries = position_k[row_length - distances], position_q[row_length - distances]
    to_position = torch.einsum("qhk,qshk->hqs", q, keys)
    return to_position + torch.einsum("shk,qshk->hqs", k, queries)


# On a CPU in bf16, the backward pass of fused attention takes 4.5 times as long as plain products
# for rows of 64, 3 times for 128, 1.5 times for this length (two cores with AMX, torch 2.13).
_LONGEST_ROW_FOR_PRODUCTS = 256


@dataclass(frozen=True)
class LayerContext:
    """The inputs that all layers of one type (global or local) share in one forward pass.

    Attributes:
        context: the segments.
        window: a token attends to this many tokens on each side; None = to its whole segment.
        backend: the resolved backend, not ``auto``.
        attention_mask: [R, 1, L, L], `AttentionContext.attention_mask` of that window; None if the
            backend needs none.
        angles: cosines and sines [T, 1, K / 2] of rotary positions; None for other positions.
        relative: [2 L + 1, D], `RelativePositions`; None for other positions.
    """

    context: AttentionContext
    window: int | None
    backend: AttentionBackend
    attention_mask: Tensor | None
    angles: tuple[Tensor, Tensor] | None
    relative: Tensor | None = None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: AttentionContext,
    window: int | None = None,
    dropout: float = 0.0,
    backend: AttentionBackend = "auto",
    attention_mask: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return ``softmax(q k^T / sqrt(K)) v`` over the segment of each token: [T, H, K].

    With `relative` positions (`RelativePositions`): ``softmax(scores / sqrt(3 K)) v``.

    Args:
        q, k, v: [T, H, K].
        context: the boundaries of the segments.
        window: a token attends to this many tokens on each side; None = to its whole segment.
        dropout: the probability of dropping an attention probability (0 outside training).
        backend: ``reference`` (dense, slow, simple), ``products`` (matrix products of rows),
            ``sdpa`` (torch's fused kernels), ``varlen`` (CUDA in half precision, no padding, no
            dropout) or ``auto``.
        attention_mask: ``context.attention_mask(window)``, if already computed for all layers.
        relative: queries and keys of relative positions, each [2 L + 1, H, K]; needs ``reference``
            or ``products``.
    """
    if backend == "auto":
        backend = choose_backend(q.device, q.dtype, dropout, context.row_length, q.shape[-1])
    assert relative is None or backend in ("reference", "products"), backend
    if backend == "reference":
        return attend_reference(q, k, v, context, window, dropout, relative)
    if backend == "varlen":
        return attend_varlen(q, k, v, context, window)
    if attention_mask is None:
        attention_mask = context.attention_mask(window)
    if backend == "products":
        return attend_products(q, k, v, attention_mask, dropout, relative)
    return attend_sdpa(q, k, v, attention_mask, dropout)


def choose_backend(
    device: torch.device, dtype: torch.dtype, dropout: float, row_length: int, head_size: int
) -> AttentionBackend:
    """Return the fastest backend for these inputs, which on a CPU depends on gradients."""
    half = dtype in (torch.float16, torch.bfloat16)
    fits = head_size % 8 == 0 and head_size <= 256  # the kernel
    if device.type == "cuda" and half and dropout == 0 and fits:
        return "varlen"
    if device.type == "cpu" and torch.is_grad_enabled():
        short = row_length <= _LONGEST_ROW_FOR_PRODUCTS
        if dropout > 0 or (half and short):  # no fused kernel on a CPU has dropout
            return "products"
    return "sdpa"


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: AttentionContext,
    window: int | None,
    dropout: float,
    relative: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute attention with one dense [T, T] attention mask and a softmax in fp32."""
    index = torch.arange(len(q), device=q.device)
    row, segment = index // context.row_length, context.segment_ids
    attends = (row[:, None] == row[None, :]) & (segment[:, None] == segment[None, :])
    if window is not None:
        attends &= (index[:, None] - index[None, :]).abs() <= window
    if context.is_causal:
        attends &= index[None, :] <= index[:, None]
    scores = torch.einsum("qhk,shk->hqs", q.float(), k.float())
    if relative is not None:
        position_q, position_k = (x.float() for x in relative)
        scores = scores + score_positions_reference(
            q.float(), k.float(), position_q, position_k, context.row_length
        )
    scores = scores / (q.shape[-1] * (1 if relative is None else 3)) ** 0.5
    probabilities = scores.masked_fill(~attends, float("-inf")).softmax(-1)
    probabilities = drop(probabilities, dropout)
    return torch.einsum("hqs,shk->qhk", probabilities, v.float()).to(q.dtype)


def attend_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_mask: Tensor,
    dropout: float,
    relative: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute attention by matrix products of whole rows, with a mask [R, 1, L, L]."""
    q, k, v = (_to_rows(x, attention_mask) for x in (q, k, v))
    scale = (q.shape[-1] * (1 if relative is None else 3)) ** -0.5
    scores = (q * scale) @ k.mT
    if relative is not None:
        position_q, position_k = relative
        scores = scores + score_positions(q * scale, k, position_q * scale, position_k)
    # An additive mask of 0 and -inf: on a CPU, adding is faster than masked_fill.
    scores = scores.add_(attention_mask.to(q.dtype).log())
    return _from_rows(drop(scores.softmax(-1), dropout) @ v)


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor, dropout: float) -> Tensor:
    """Compute attention over rows by torch's fused kernels, with a mask [R, 1, L, L]."""
    q, k, v = (_to_rows(x, attention_mask) for x in (q, k, v))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask, dropout_p=dropout)
    return _from_rows(attended)


def _to_rows(x: Tensor, attention_mask: Tensor) -> Tensor:
    """Reshape [T, H, K] to [R, H, L, K]."""
    return x.unflatten(0, (attention_mask.shape[0], attention_mask.shape[-1])).transpose(1, 2)


def _from_rows(x: Tensor) -> Tensor:
    """Reshape [R, H, L, K] to [T, H, K]."""
    return x.transpose(1, 2).flatten(0, 1)


def attend_varlen(
    q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, window: int | None
) -> Tensor:
    """Compute flash attention over segments of any length; CUDA, fp16 or bf16."""
    from torch.nn.attention.varlen import varlen_attn

    bounds, longest = context.cu_seqlens, context.max_seqlen
    before = -1 if window is None else window
    # Only these arguments have the same names and order in all torch versions.
    attended = varlen_attn(
        *(q, k, v, bounds, bounds, longest, longest),
        window_size=(before, 0 if context.is_causal else before),
    )
    return cast(Tensor, attended)


class SelfAttention(nn.Module):
    """``output(attend(q, k, v))`` with ``q, k, v = qkv(x)``: [T, D] -> [T, D].

    Vaswani et al., "Attention Is All You Need", 2017. The rows of ``qkv.weight`` [3 D, D] are
    those of q, then k, then v, head by head. With `output_positions` [W], the output is [W, D].
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, bias = config.hidden_size, config.attention_bias
        self.heads_and_size = (config.num_attention_heads, config.head_size)
        self.dropout, self.position_dropout = config.attention_dropout, config.hidden_dropout
        self.qkv = nn.Linear(size, 3 * size, bias=bias)
        self.q_norm = RMSNorm(config.head_size, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_size, config.norm_eps) if config.qk_norm else None
        self.output = nn.Linear(size, size, bias=bias)

    def forward(
        self, x: Tensor, layer: LayerContext, output_positions: Tensor | None = None
    ) -> Tensor:
        q, k, v = self._project(x, layer.angles)
        relative = None
        if layer.relative is not None:
            vectors = drop(layer.relative, self.position_dropout if self.training else 0.0)
            relative = self._project(vectors)[:2]
        dropout = self.dropout if self.training else 0.0
        where = (layer.context, layer.window, dropout, layer.backend, layer.attention_mask)
        attended = attend(q, k, v, *where, relative).flatten(1)
        if output_positions is not None:
            attended = attended.index_select(0, output_positions)
        return self.output(attended)

    def _project(
        self, x: Tensor, angles: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k (both rotated by `angles`) and v of content or positions: [T, H, K]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, *self.heads_and_size)).unbind(1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        return q, k, v
