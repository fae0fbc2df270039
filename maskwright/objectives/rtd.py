"""Replaced-token detection: a generator guesses hidden tokens, a discriminator finds its guesses.

Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", 2020.
As in the authors' code:

- The generator learns by masked language modelling. What stands in each hidden place for the
  discriminator is drawn from its softmax; no gradient goes through the draw.
- A drawn token that is the hidden one counts as original.
- The discriminator's loss is a mean over all tokens but padding; [CLS] and [SEP], which are never
  replaced, are among them.

A draw takes one number in [0, 1), which comes with the batch and depends on nothing but the seed,
the epoch and the token's place. So the same tokens are drawn however a batch is cut.

T token slots, M prediction slots, V vocabulary.
"""

from operator import attrgetter
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.model.electra import GeneratorAndDiscriminator
from maskwright.objectives.cross_entropy import sum_cross_entropy
from maskwright.objectives.mlm import MLM, MLM_TERM
from maskwright.objectives.terms import Term, TermSums

RTD = "rtd"


class ReplacedTokens(NamedTuple):
    """What the discriminator sees, and what is true of it; each [T].

    Attributes:
        input_ids: the clean text with drawn tokens in the hidden places.
        is_replaced: where the drawn token is not the hidden one.
        is_real: where there is a token and no padding.
    """

    input_ids: Tensor
    is_replaced: Tensor
    is_real: Tensor


class Detection(NamedTuple):
    """Logits [M, V] of the generator, and [T] of the discriminator on the tokens it drew."""

    generator_logits: Tensor
    tokens: ReplacedTokens
    scores: Tensor


class ReplacedTokenDetection(nn.Module):
    """The objective over both models.

    Args:
        discriminator_weight: of the discriminator's mean loss; the generator's has 1.
    """

    def __init__(self, model: GeneratorAndDiscriminator, discriminator_weight: float) -> None:
        super().__init__()
        self.model = model
        self.terms = {
            MLM: MLM_TERM,
            RTD: Term(discriminator_weight, "rtd_loss", "rtd_accuracy", attrgetter("num_tokens")),
        }

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Sums over the hidden tokens, and over all tokens."""
        found = detect_replaced(self.model, batch)
        return {
            MLM: sum_cross_entropy(found.generator_logits, batch.masked_labels),
            RTD: sum_binary_cross_entropy(found.scores, found.tokens),
        }


def detect_replaced(model: GeneratorAndDiscriminator, batch: Batch) -> Detection:
    """Lets the generator replace the hidden tokens, and the discriminator judge all."""
    logits = model.generator(batch.input_ids, batch.context, batch.masked_positions)
    drawn = draw_tokens(logits, batch.masked_draws)
    tokens = replace_tokens(batch, drawn, model.config.pad_token_id)
    scores = model.discriminator(tokens.input_ids, batch.context)
    return Detection(logits, tokens, scores)


@torch.no_grad()
def draw_tokens(logits: Tensor, draws: Tensor) -> Tensor:
    """[M] tokens from the softmax of `logits` [M, V]: the first whose cumulative probability
    exceeds the draw [M]."""
    cumulative = logits.detach().float().softmax(-1).cumsum(-1)
    # Rounding may leave the last of them below 1.
    reached = draws[:, None] * cumulative[:, -1:]
    return (cumulative <= reached).sum(-1).clamp(max=logits.shape[-1] - 1)


def replace_tokens(batch: Batch, drawn: Tensor, pad_token_id: int) -> ReplacedTokens:
    """Puts the `drawn` tokens [M] into the hidden places, all others being as in the text."""
    ids, labels = batch.input_ids, batch.masked_labels
    used = labels != IGNORED
    # Unused slots write behind the end, where nothing is read.
    places = torch.where(used, batch.masked_positions, len(ids))
    replaced = torch.cat([ids, ids.new_zeros(1)]).index_copy(0, places, drawn)[:-1]
    is_replaced = torch.zeros(len(ids) + 1, dtype=torch.bool, device=ids.device)
    is_replaced = is_replaced.index_copy(0, places, drawn != labels)[:-1]
    return ReplacedTokens(replaced, is_replaced, ids != pad_token_id)


def sum_binary_cross_entropy(scores: Tensor, tokens: ReplacedTokens) -> TermSums:
    """Sums over all real tokens; `scores` [T] are log odds of being replaced; in fp32."""
    truth = tokens.is_replaced.float()
    losses = F.binary_cross_entropy_with_logits(scores.float(), truth, reduction="none")
    is_right = (scores.detach() > 0) == tokens.is_replaced
    return TermSums(
        torch.where(tokens.is_real, losses, 0.0).sum(), (is_right & tokens.is_real).sum()
    )


@torch.no_grad()
def predict_replaced(model: GeneratorAndDiscriminator, batch: Batch) -> tuple[Tensor, Tensor]:
    """Log odds of each real token of having been replaced, and whether it was."""
    found = detect_replaced(model, batch)
    real = found.tokens.is_real
    return found.scores[real].float(), found.tokens.is_replaced[real]
