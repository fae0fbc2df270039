"""The masked and causal hybrid of GPT-BERT (Charpentier and Samuel, "GPT or BERT: why not both?",
2024): one model, one head, and two kinds of steps.

Masked steps predict masked tokens from both sides; causal steps predict every token from the
previous ones. In both, the hidden state of the previous position predicts a token
(``next_token_prediction``), so that both kinds of steps train the same function.
"""

import torch

from maskwright.data.batch import Batch
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MLM, MLM_TERM, MaskedLM, MaskedTokens
from maskwright.objectives.objective import Loss, ScoreLine, Term, TermSums

CLM = "clm"


def _count_causal(batch: Batch) -> int:
    return batch.num_predictions if batch.context.is_causal else 0


def _count_masked(batch: Batch) -> int:
    return 0 if batch.context.is_causal else batch.num_predictions


class MaskedAndCausalLM(MaskedLM):
    """Both losses of one model; each batch has predictions of one kind only."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__(model)
        self.terms = {
            MLM: Term(MLM_TERM.weight, MLM_TERM.loss_name, MLM_TERM.accuracy_name, _count_masked),
            CLM: Term(1.0, "causal_loss", "causal_accuracy", _count_causal),
        }

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Return sums over the entries whose label is not -100."""
        [sums] = super().forward(batch).values()
        nothing = TermSums(torch.zeros_like(sums.loss), torch.zeros_like(sums.num_correct))
        kind = CLM if batch.context.is_causal else MLM
        return {name: sums if name == kind else nothing for name in self.terms}


class CausalSteps(MaskedTokens):
    """Masked steps and causal steps of one model; scores are those of masked tokens."""

    scores = (
        *MaskedTokens.scores,
        ScoreLine("causal_loss", "causal loss (nats)", headline="causal loss"),
    )

    def build_network(self, architecture: EncoderConfig) -> MaskedLanguageModel:
        if not architecture.next_token_prediction:
            share, rule = self.masking.causal_share, "requires model.next_token_prediction = True"
            raise ConfigError("masking.causal_share", share, rule, "Set that, or set this to 0.")
        return super().build_network(architecture)

    def build_loss(self, network: MaskedLanguageModel) -> Loss:
        return MaskedAndCausalLM(network)
