"""Disentangled attention: scores for the content of two tokens and for their relative position.

He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", 2021. A score is the sum
of content to content (q k), content to position (q p_k) and position to content (k p_q), where p_k
and p_q are the key and query of the vector of the distance "query minus key". The vectors are
shared by all layers, and the projections are those of the content (``share_att_key``).

R rows of L tokens, T = R L tokens, D width, H heads, K head size, P = 2 L + 1 distances from L down
to -L, B buckets on each side.
"""

import torch
from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
from maskwright.model.layers import build_norm


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
        self.embedding = nn.Embedding(2 * self.num_buckets, config.hidden_size)
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
