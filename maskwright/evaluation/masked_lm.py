"""Masked-language-model scores on pinned masks, beside what no learning would score.

The few that every validation of a run wants, on all of its ranks; `masked_suite` has all others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from maskwright.data.batch import Batch
from maskwright.data.collate import SpecialIds
from maskwright.data.config import DataConfig
from maskwright.data.loader import Corpus
from maskwright.data.masking import IGNORED, Vocabulary
from maskwright.distributed.world import ALONE, World
from maskwright.evaluation.pinned import PinnedText
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.objectives.mlm import predict_masked

_TOP = 5


@dataclass(frozen=True)
class MaskedLMScores:
    """Scores over all predictions of a validation.

    Attributes:
        loss: mean -log p of the hidden tokens, in nats.
        masked_accuracy: share of the hidden tokens that are the most likely token.
        masked_accuracy_top5: share that are among the five most likely.
        seen_mask_accuracy: of those that the model sees as [MASK], the share that are the most
            likely token; of the others, which are random tokens or left as they are, it can copy.
        unigram_loss: the loss of predicting the training text's token frequencies.
        unigram_accuracy: the accuracy of always predicting its most frequent token.
        num_predictions: hidden tokens.
    """

    loss: float
    masked_accuracy: float
    masked_accuracy_top5: float
    seen_mask_accuracy: float
    unigram_loss: float
    unigram_accuracy: float
    num_predictions: int


def build_pinned_batches(
    corpus: Corpus,
    config: DataConfig,
    special: SpecialIds,
    vocabulary: Vocabulary,
    num_tokens: int,
    world: World = ALONE,
) -> Iterator[Batch]:
    """Pinned masks in up to `num_tokens` slots of a corpus (see `PinnedText`).

    Each rank gets its own rows of every batch.
    """
    return PinnedText(corpus, config, special, vocabulary, num_tokens).batches(world=world)


def evaluate_masked_lm(
    model: MaskedLanguageModel,
    batches: Iterator[Batch],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World = ALONE,
) -> MaskedLMScores:
    """Scores of `model`, which names its [MASK], on the batches of all ranks.

    Logits are dropped batch by batch.

    Args:
        unigram_counts: [V] token counts of the training text; one is added to each.
    """
    return _to_scores(_sum_up(model, batches, unigram_counts, device, world))


def evaluate_sources(
    model: MaskedLanguageModel,
    batches: Mapping[str, Iterator[Batch]],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World = ALONE,
) -> tuple[MaskedLMScores, dict[str, MaskedLMScores]]:
    """Scores over the predictions of all sources, and those of each; see `evaluate_masked_lm`."""
    sums = {
        name: _sum_up(model, own, unigram_counts, device, world) for name, own in batches.items()
    }
    total = [sum(column) for column in zip(*sums.values(), strict=True)]
    return _to_scores(total), {name: _to_scores(own) for name, own in sums.items()}


@torch.no_grad()
def _sum_up(
    model: MaskedLanguageModel,
    batches: Iterator[Batch],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World,
) -> list[float]:
    """Sums over the predictions of all ranks, as `_to_scores` wants them."""
    frequencies = torch.from_numpy(unigram_counts).double() + 1
    unigram_log = (frequencies / frequencies.sum()).log()
    most_frequent = frequencies.argmax()
    sums = torch.zeros(7, dtype=torch.float64)
    count = 0
    for batch in batches:
        batch = batch.to(device)
        used = batch.masked_labels != IGNORED
        labels = batch.masked_labels[used]
        logits = predict_masked(model, batch)[used]
        best = logits.topk(_TOP, dim=-1).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        is_mask = batch.input_ids[batch.masked_positions[used]] == model.config.mask_token_id
        seen = torch.stack([(best[:, 0] & is_mask).sum(), is_mask.sum()]).cpu()
        labels = labels.cpu()
        sums += torch.stack(
            [
                loss.cpu().double(),
                best[:, 0].sum().cpu(),
                best.any(dim=1).sum().cpu(),
                -unigram_log[labels].sum(),
                (labels == most_frequent).sum(),
                *seen,
            ]
        )
        count += len(labels)
    return [*world.sum(*sums.tolist(), count)]


def _to_scores(sums: Sequence[float]) -> MaskedLMScores:
    *totals, seen_correct, num_seen, count = sums
    loss, accuracy, top5, unigram_loss, unigram_accuracy = (t / max(count, 1) for t in totals)
    return MaskedLMScores(
        loss,
        accuracy,
        top5,
        seen_correct / max(num_seen, 1),
        unigram_loss,
        unigram_accuracy,
        int(count),
    )
