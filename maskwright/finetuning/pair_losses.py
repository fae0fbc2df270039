"""Losses of pairs of vectors: multiple negatives (InfoNCE), CoSENT, Matryoshka.

R rows of a table, N negatives, D width. Use multiple negatives for pairs that belong together, and
CoSENT for pairs with a number of how similar they are. Matryoshka computes either on the first
dimensions, too, so that vectors can be cut. In sentence-transformers they are
``MultipleNegativesRankingLoss`` (here in both directions), ``CoSENTLoss`` and ``MatryoshkaLoss``; a
test compares the first two.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.tokenizer.template import ModelInput

TEMPERATURE = 0.05  # as in SimCSE, Gao et al. 2021

_TOO_NEAR = 5  # nearest partners that are not used as negatives
_CHUNK = 512  # texts that are compared with all partners at once


def multiple_negatives_loss(
    first: Tensor,
    second: Tensor,
    same: Tensor | None = None,
    negatives: Tensor | None = None,
    right: Tensor | None = None,
) -> Tensor:
    """Return the InfoNCE loss of R pairs of vectors [R, D], with in-batch negatives.

    ``-1/R Σ log softmax(cos(a_i, b_j) / temperature)_i``, the mean of both directions. van den Oord
    et al., "Representation Learning with Contrastive Predictive Coding", 2018.

    Args:
        same: [R, R] True where pairs i and j share a text, so that j is not a negative of i.
        negatives: [N, D] additional negatives of all first texts.
        right: [R, N] True where a negative shares a text with pair i, so that it is ignored.
    """
    similar = compare(first, second, same) / TEMPERATURE
    own = torch.arange(len(first), device=first.device)
    backward = F.cross_entropy(similar.T, own)
    if negatives is not None:
        wrong = F.normalize(first, dim=-1) @ F.normalize(negatives, dim=-1).T / TEMPERATURE
        wrong = wrong if right is None else wrong.masked_fill(right, float("-inf"))
        similar = torch.cat((similar, wrong), 1)
    return (F.cross_entropy(similar, own) + backward) / 2


def cosent_loss(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Return the loss of R pairs of vectors [R, D] that orders their cosines by `scores`.

    ``log(1 + Σ exp((cos_i - cos_j) / temperature))`` over all i with a smaller score than j [R].
    Su, "CoSENT", 2022.
    """
    cosines = F.cosine_similarity(first, second) / TEMPERATURE
    misplaced = cosines[:, None] - cosines[None, :]
    counted = scores[:, None] < scores[None, :]
    misplaced = misplaced.masked_fill(~counted, float("-inf")).flatten()
    return torch.cat((misplaced.new_zeros(1), misplaced)).logsumexp(0)


def matryoshka_loss(loss: Callable[..., Tensor], sizes: Sequence[int], *vectors: Tensor) -> Tensor:
    """Return the mean of a loss over full vectors [R, D] and their first `sizes` dimensions.

    Kusupati et al., "Matryoshka Representation Learning", 2022.
    """
    sizes = (vectors[0].shape[-1], *sizes)
    return torch.stack([loss(*(x[:, :size] for x in vectors)) for size in sizes]).mean()


def compare(first: Tensor, second: Tensor, same: Tensor | None = None) -> Tensor:
    """Return cosines [R, R] of all first texts with all partners; -inf where `same`, i != j."""
    similar = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T
    if same is None:
        return similar
    others = same & ~torch.eye(len(first), dtype=torch.bool, device=first.device)
    return similar.masked_fill(others, float("-inf"))


def find_same(first: Sequence[ModelInput], second: Sequence[ModelInput]) -> Tensor:
    """Return [R, R] bool, symmetric: True where two pairs share a text, on either side."""
    numbers = number_texts(first, second)
    return overlap(numbers, numbers)


def number_texts(*columns: Sequence[ModelInput]) -> list[Tensor]:
    """Return an id for each text of each column; equal texts have equal ids."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        torch.tensor([numbers.setdefault(tuple(one.ids), len(numbers)) for one in column])
        for column in columns
    ]


def overlap(rows: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Return [R, N] bool: True where a row shares a text with another (`number_texts`)."""
    same = torch.zeros(len(rows[0]), len(others[0]), dtype=torch.bool)
    for ours in rows:
        for theirs in others:
            same |= ours[:, None] == theirs[None, :]
    return same


def mine_negatives(first: Tensor, second: Tensor, numbers: Sequence[Tensor]) -> list[int]:
    """Return for each first text [R, D] the row of a hard negative: a near but wrong partner.

    The nearest partners are skipped, since some of them are unlabeled positives (Karpukhin et al.,
    "Dense Passage Retrieval", 2020, use the nearest passage without an answer); partners that share
    a text are positives (`numbers`: the ids of both columns).
    """
    units, partners = F.normalize(first, dim=-1), F.normalize(second, dim=-1).T
    found: list[int] = []
    for start in range(0, len(first), _CHUNK):
        here = slice(start, start + _CHUNK)
        same = overlap([column[here] for column in numbers], numbers)
        near = (units[here] @ partners).masked_fill(same, float("-inf"))
        best = near.topk(min(_TOO_NEAR + 1, near.shape[1]), dim=1)
        last = best.values.isfinite().sum(1).clamp(min=1) - 1
        found += best.indices.gather(1, last[:, None])[:, 0].tolist()
    return found
