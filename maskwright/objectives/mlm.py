"""Masked language modelling (Devlin et al. 2019): the sum of -log p(hidden token)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.data.batch import Batch
from maskwright.data.masking.corruption import IGNORED
from maskwright.model.attention_context import AttentionContext
from maskwright.model.pretraining import MaskedLanguageModel


class ObjectiveSums(NamedTuple):
    """Sums over the predictions of a batch; the caller divides by their global count.

    Attributes:
        loss: [] in nats; 0 without a prediction, never NaN.
        num_correct: [] predictions whose most likely token is the right one.
    """

    loss: Tensor
    num_correct: Tensor


class MaskedLM(nn.Module):
    """The objective over a model. M prediction slots, V vocabulary."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        context: AttentionContext,
        masked_positions: Tensor,
        masked_labels: Tensor,
    ) -> ObjectiveSums:
        """Sums over the slots whose label is not -100: [T], context, [M], [M] -> [], []."""
        logits = self.model(input_ids, context, masked_positions).float()
        loss = F.cross_entropy(logits, masked_labels, ignore_index=IGNORED, reduction="sum")
        correct = (logits.detach().argmax(-1) == masked_labels).sum()
        return ObjectiveSums(loss, correct)


def context_of(batch: Batch) -> AttentionContext:
    """The batch's segment boundaries as the model wants them."""
    return AttentionContext(
        positions=batch.positions,
        segment_ids=batch.segment_ids,
        cu_seqlens=batch.cu_seqlens,
        max_seqlen=batch.row_length,
        row_length=batch.row_length,
    )


@torch.no_grad()
def predict_masked(model: MaskedLanguageModel, batch: Batch) -> Tensor:
    """Logits [M, V] in fp32 for the prediction slots of a batch, unused slots included."""
    return model(batch.input_ids, context_of(batch), batch.masked_positions).float()
