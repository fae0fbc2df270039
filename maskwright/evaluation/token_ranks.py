"""How a model ranks masked tokens, and how their frequencies would: for the suites mlm and fill.

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
    """How a model predicts M masked tokens.

    Attributes:
        loss: [M] -log p of the right token, in nats.
        rank: [M] its rank, from 1, among all tokens by falling logit; ties by ascending id.
        confidence: [M] the probability of the most likely token.
    """

    loss: NDArray[np.float64]
    rank: NDArray[np.int64]
    confidence: NDArray[np.float64]


@torch.no_grad()
def rank_labels(model: MaskedLanguageModel, hidden: Tensor, labels: Tensor) -> TokenPredictions:
    """Compare hidden states [M, D] with the right tokens [M], a few thousand at a time.

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
    """Guessing by the token frequencies of the training text, one added to each count.

    Args:
        counts: [V], 0 for what can never be a label.

    Attributes:
        loss: [V] -log of each token's frequency.
        rank: [V] its rank by falling frequency, from 1; ties by ascending id.
        decade: [V] the power of ten below its count; counts below 10 are in decade 0.
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        frequencies = counts.astype(np.float64) + 1
        self.loss = -np.log(frequencies / frequencies.sum())
        self.rank = np.empty(len(counts), np.int64)
        self.rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
        self.decade = np.array([len(str(count)) - 1 for count in counts.tolist()])
        self.num_decades = int(self.decade.max()) + 1
