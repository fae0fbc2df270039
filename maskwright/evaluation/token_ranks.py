"""Ranks of masked tokens by a model and by token frequency, for the suites mlm and fill.

M masked tokens, D width, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.inference.text_model import check_finite
from maskwright.model.masked_lm import MaskedLanguageModel

_LOGITS_AT_ONCE = 1 << 24  # 64 MB of fp32


@dataclass(frozen=True)
class TokenPredictions:
    """The predictions of a model for M masked tokens.

    Attributes:
        loss: [M] -log p of the correct token, in nats.
        rank: [M] its rank, from 1, among all tokens by descending logit; ties by ascending id.
        confidence: [M] the probability of the most probable token.
    """

    loss: NDArray[np.float64]
    rank: NDArray[np.int64]
    confidence: NDArray[np.float64]


@torch.no_grad()
def rank_labels(model: MaskedLanguageModel, hidden: Tensor, labels: Tensor) -> TokenPredictions:
    """Return the predictions from hidden states [M, D] for labels [M], in chunks.

    Raises:
        ModelFolderError: the model's probabilities are not finite.
    """
    at_once = max(1, _LOGITS_AT_ONCE // model.config.vocab_size)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for vectors, right in zip(hidden.split(at_once), labels.split(at_once), strict=True):
        logits = model.head(vectors).float()
        own = logits.gather(1, right[:, None])
        ids = torch.arange(logits.shape[1], device=logits.device)
        before = (logits > own) | ((logits == own) & (ids < right[:, None]))
        confidence = (logits.amax(1) - logits.logsumexp(1)).exp()
        losses = F.cross_entropy(logits, right, reduction="none")
        check_finite(losses)
        parts.append((losses, before.sum(1) + 1, confidence))
    loss, rank, confidence = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return TokenPredictions(loss.astype(np.float64), rank, confidence.astype(np.float64))


class Unigram:
    """The baseline that predicts by training frequencies, with add-one smoothing.

    Args:
        counts: [V] training counts, 0 for tokens that are never labels.

    Attributes:
        loss: [V] -log of each token's frequency.
        rank: [V] its rank by descending frequency, from 1; ties by ascending id.
        decade: [V] the integer part of log10 of its count; counts below 10 are in decade 0.
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        frequencies = counts.astype(np.float64) + 1
        self.loss = -np.log(frequencies / frequencies.sum())
        self.rank = np.empty(len(counts), np.int64)
        self.rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
        self.decade = np.array([len(str(count)) - 1 for count in counts.tolist()])
        self.num_decades = int(self.decade.max()) + 1
