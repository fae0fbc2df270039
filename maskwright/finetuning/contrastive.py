"""Contrastive losses, and the cosines from which losses and scores are computed.

R rows of a table, N negatives, D width. In sentence-transformers the losses are named
``MultipleNegativesRankingLoss`` (here in both directions), ``CoSENTLoss`` and ``MatryoshkaLoss``.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.finetuning.examples import InputBatch
from maskwright.model.attention import SelfAttention
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.template import ModelInput

TEMPERATURE = 0.05  # as in SimCSE, Gao et al. 2021
_TOO_NEAR = 5  # nearest partners that are not used as negatives
_CHUNK = 512  # texts that are compared with all partners at once


def contrast(
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


def order(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Return the loss of R pairs of vectors [R, D] that orders their cosines by `scores`.

    ``log(1 + Σ exp((cos_i - cos_j) / temperature))`` over all i with a smaller score than j [R].
    Su, "CoSENT", 2022.
    """
    cosines = F.cosine_similarity(first, second) / TEMPERATURE
    misplaced = cosines[:, None] - cosines[None, :]
    counted = scores[:, None] < scores[None, :]
    misplaced = misplaced.masked_fill(~counted, float("-inf")).flatten()
    return torch.cat((misplaced.new_zeros(1), misplaced)).logsumexp(0)


def nest(loss: Callable[..., Tensor], sizes: Sequence[int], *vectors: Tensor | None) -> Tensor:
    """Return the mean of a loss over full vectors [R, D] and their first `sizes` dimensions.

    Kusupati et al., "Matryoshka Representation Learning", 2022.
    """
    width = next(x.shape[-1] for x in vectors if x is not None)
    losses = [
        loss(*(None if x is None else x[:, :size] for x in vectors)) for size in (width, *sizes)
    ]
    return torch.stack(losses).mean()


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
    """Return [R, N] bool: True where a row shares a text with another.

    Args:
        rows, others: the columns of R and of N rows, as `number_texts` returns them.
    """
    same = torch.zeros(len(rows[0]), len(others[0]), dtype=torch.bool)
    for ours in rows:
        for theirs in others:
            same |= ours[:, None] == theirs[None, :]
    return same


def mine_negatives(first: Tensor, second: Tensor, numbers: Sequence[Tensor]) -> list[int]:
    """Return for each first text [R, D] the row of a hard negative: a near but wrong partner.

    The nearest partners are skipped, since some of them are unlabeled positives (Karpukhin et al.,
    "Dense Passage Retrieval", 2020, use the nearest passage without an answer).

    Args:
        numbers: the ids of both columns (`number_texts`); partners that share a text are positives.
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


_DELETED = 0.6  # share of the tokens, the best of the paper


class Decoder(nn.Module):
    """A causal decoder that attends to one vector per text; it is not part of the trained model.

    Its blocks and embeddings are those of the encoder, as in the paper. Attention to a single
    vector has the weight 1 whatever the query is, so it is a linear map of that vector; each block
    adds its own map, which starts at zero, to the output of its self-attention (in a post-norm
    block of the paper, a norm separates the two). The head starts as a copy of the model's.
    """

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        size, self.head = model.config.hidden_size, deepcopy(model.head)
        if model.config.tie_word_embeddings:
            self.head.decoder.weight = model.encoder.embeddings.word.weight
        self.maps = nn.ModuleList(nn.Linear(size, size) for _ in model.encoder.blocks)
        for parameter in self.maps.parameters():
            nn.init.zeros_(parameter)
        self.to(model.encoder.embeddings.word.weight.device)

    def forward(self, model: MaskedLanguageModel, batch: InputBatch, vectors: Tensor) -> Tensor:
        """Return the mean cross-entropy of each token after the first, given those before it.

        Args:
            batch: the whole texts.
            vectors: [R, D].
        """
        context = batch.context
        layers = [one for one in model.encoder.modules() if isinstance(one, SelfAttention)]
        with ExitStack() as hooks:
            for attention, linear in zip(layers, self.maps, strict=True):
                hook = partial(_add, linear(vectors).repeat_interleave(context.row_length, 0))
                hooks.callback(attention.register_forward_hook(hook).remove)
            hidden = model.encoder(batch.input_ids, replace(context, is_causal=True))
        predicted = torch.nonzero((context.segment_ids == 0) & (context.positions > 0))[:, 0]
        logits = self.head(hidden[predicted - 1]).float()
        # A text may be a single token, of which nothing is to be predicted.
        loss = F.cross_entropy(logits, batch.input_ids[predicted], reduction="sum")
        return loss / max(1, len(predicted))


def _add(more: Tensor, _attention: nn.Module, _inputs: object, attended: Tensor) -> Tensor:
    return attended + more


def delete_tokens(inputs: Sequence[ModelInput], num_added: int) -> list[ModelInput]:
    """Return the inputs with 40 % of their tokens, drawn by torch's generator, at least one each.

    Args:
        num_added: the number of special tokens of an input, which are kept.
    """
    return [_delete(one, num_added) for one in inputs]


def _delete(one: ModelInput, num_added: int) -> ModelInput:
    end = len(one.ids) - (num_added - one.first)
    count = end - one.first
    drawn = torch.randperm(count)[: max(1, round(count * (1 - _DELETED)))] + one.first
    kept = [*range(one.first), *sorted(drawn.tolist()), *range(end, len(one.ids))]
    return ModelInput([one.ids[n] for n in kept], [one.type_ids[n] for n in kept], one.first)
