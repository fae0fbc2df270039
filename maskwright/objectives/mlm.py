"""Masked language modelling (Devlin et al. 2019): the sum of -log p(hidden token)."""

from operator import attrgetter

import torch
from torch import Tensor, nn

from maskwright.data.batch import Batch
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.objectives.cross_entropy import sum_cross_entropy
from maskwright.objectives.terms import Term, TermSums

MLM = "mlm"
MLM_TERM = Term(1.0, "loss", "masked_accuracy", attrgetter("num_predictions"))


class MaskedLM(nn.Module):
    """The objective over a model. M prediction slots, V vocabulary."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = model
        self.terms = {MLM: MLM_TERM}

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Sums over the slots whose label is not -100."""
        logits = self.model(
            batch.input_ids, batch.context, batch.masked_positions, batch.token_type_ids
        )
        return {MLM: sum_cross_entropy(logits, batch.masked_labels)}


@torch.no_grad()
def predict_masked(model: MaskedLanguageModel, batch: Batch) -> Tensor:
    """Logits [M, V] in fp32 for the prediction slots of a batch, unused slots included."""
    logits = model(batch.input_ids, batch.context, batch.masked_positions, batch.token_type_ids)
    return logits.float()
