"""How well a model judges pairs of texts: next-sentence and sentence-order prediction.

The pairs of held-out rows are a function of a seed, as masks are (`build_pinned_batches`), so two
evaluations differ by the model alone. Half of the labels are 1 or a little less; the share of the
larger class is what always giving the same answer scores.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.distributed.world import ALONE, World
from maskwright.errors import InputError
from maskwright.model.pretraining import MaskedLanguageModel


@dataclass(frozen=True)
class SentencePairScores:
    """Scores over all pairs of a validation.

    Attributes:
        pair_loss: mean -log p of the right answer, in nats; log 2 = 0.693 without learning.
        pair_accuracy: share of right answers.
        pair_baseline: share of the more frequent label.
        num_pairs: pairs with a label.
    """

    pair_loss: float
    pair_accuracy: float
    pair_baseline: float
    num_pairs: int


def predict_pairs(model: MaskedLanguageModel, batch: Batch) -> Tensor:
    """Logits [P, 2] in fp32 for the pair slots of a batch, unused slots included.

    The text is seen as in pretraining, with its hidden tokens.

    Raises:
        InputError: the model judges no pairs, or the batch holds none.
    """
    if model.config.sentence_pair_head and batch.pair_positions is not None:
        with torch.no_grad():
            logits = model(
                batch.input_ids,
                batch.context,
                batch.masked_positions[:0],  # no words are to be predicted
                batch.token_type_ids,
                batch.pair_positions,
            )
        return logits.pairs.float()
    part = "rows" if model.config.sentence_pair_head else "model"
    raise InputError(f"the {part} had no pairs of texts: train with data.pairs = next or order")


def evaluate_sentence_pairs(
    model: MaskedLanguageModel,
    batches: Iterable[Batch],
    device: torch.device,
    world: World = ALONE,
) -> SentencePairScores:
    """Scores of `model`, in evaluation mode, on the batches of all ranks."""
    sums = torch.zeros(3, dtype=torch.float64)
    count = 0
    for batch in batches:
        batch = batch.to(device)
        logits = predict_pairs(model, batch)
        assert batch.pair_labels is not None, "predict_pairs has refused such a batch"
        used = batch.pair_labels != IGNORED
        logits, labels = logits[used], batch.pair_labels[used]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        correct = (logits.argmax(-1) == labels).sum()
        sums += torch.stack([loss.double(), correct.double(), labels.sum().double()]).cpu()
        count += len(labels)
    *totals, count = world.sum(*sums.tolist(), count)
    loss, accuracy, second = (total / max(count, 1) for total in totals)
    baseline = max(second, 1 - second) if count else 0.0
    return SentencePairScores(loss, accuracy, baseline, int(count))
