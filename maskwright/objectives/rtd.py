"""Replaced-token detection: a discriminator detects the tokens that a generator replaced.

Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", 2020.
As in the authors' code:

- The generator is trained by masked language modeling. Tokens drawn from its softmax replace the
  masked tokens in the discriminator's input; no gradient passes through the draw.
- A drawn token that equals the masked token counts as original.
- The discriminator's loss is a mean over all tokens except padding, including [CLS] and [SEP],
  which are never replaced.

Each draw uses a number in [0, 1) from the batch, a function of the seed, the epoch and the token's
position, so the draws do not depend on how a batch is split. In validation these numbers are pinned
like the masks, but the drawn tokens depend on the generator: a better generator replaces fewer
tokens, and they are harder to detect. Compare accuracy and loss therefore only with their baseline,
which always predicts "original".

T positions, M masked positions, V vocabulary.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.distributed.world import ALONE, World
from maskwright.errors import ConfigError
from maskwright.model.config import GENERATOR, EncoderConfig
from maskwright.model.electra import Discriminator, GeneratorAndDiscriminator, narrow_config
from maskwright.model.flops import (
    count_flops_per_token,
    count_parameters,
    count_token_head_flops_per_token,
)
from maskwright.model.fused import sum_cross_entropy
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MLM, MLM_TERM, MaskedTokens, validate_masked_lm
from maskwright.objectives.objective import (
    HeldOut,
    Loss,
    Objective,
    Term,
    TermSums,
    TrainedModel,
)
from maskwright.objectives.scores import ScoreLine, divide

RTD = "rtd"


class Replaced(NamedTuple):
    """The discriminator's input and its labels; each [T].

    Attributes:
        input_ids: the clean text with drawn tokens in the masked positions.
        is_replaced: True where the drawn token differs from the masked token.
        is_real: True where there is a token and no padding.
    """

    input_ids: Tensor
    is_replaced: Tensor
    is_real: Tensor


class Detection(NamedTuple):
    """Logits of the generator [M, V], and of the discriminator [T] on the drawn tokens."""

    generator_logits: Tensor
    tokens: Replaced
    scores: Tensor


class ReplacedTokensLoss(Loss):
    """The loss of both models.

    Args:
        discriminator_weight: the weight of the discriminator's mean loss; the generator's is 1.
    """

    def __init__(self, model: GeneratorAndDiscriminator, discriminator_weight: float) -> None:
        super().__init__()
        self.model = model
        self.terms = {
            MLM: MLM_TERM,
            RTD: Term(discriminator_weight, "rtd_loss", "rtd_accuracy", attrgetter("num_tokens")),
        }

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Return sums over the masked tokens, and over all tokens."""
        found = detect_replaced(self.model, batch)
        return {
            MLM: TermSums(*sum_cross_entropy(found.generator_logits, batch.masked_labels)),
            RTD: sum_binary_cross_entropy(found.scores, found.tokens),
        }


class ReplacedTokens(Objective[GeneratorAndDiscriminator]):
    """Joint training of a generator (masked language modeling) and a discriminator."""

    scores = (
        *MaskedTokens.scores,
        ScoreLine(
            "rtd_loss",
            "replaced-token loss (nats)",
            headline="replaced loss",
            baseline="rtd_base_loss",
            baseline_name="always the share of replaced tokens",
        ),
        ScoreLine(
            "rtd_accuracy",
            "replaced-token accuracy",
            baseline="rtd_base_accuracy",
            baseline_name="always original",
        ),
        ScoreLine("rtd_recall", "replaced tokens found"),
    )
    counts = (*MaskedTokens.counts, ("num_judged", "judged tokens"))
    notes = f"""{MaskedTokens.notes}

The generator predicts masked tokens; the discriminator classifies {{num_judged:,}} tokens, some of
which the generator replaced. Its baseline always predicts "original" (accuracy), or the share of
replaced tokens as the probability of every token (loss)."""

    def build_network(self, architecture: EncoderConfig) -> GeneratorAndDiscriminator:
        return GeneratorAndDiscriminator(
            architecture, self._narrow(architecture), self.config.disentangled_embeddings
        )

    def _narrow(self, architecture: EncoderConfig) -> EncoderConfig:
        share = self.config.generator_share
        try:
            return narrow_config(architecture, share)
        except ConfigError as error:
            rule = f"makes the generator's {error.field} {error.value}, which {error.rule}"
            remedy = "Set it to 1, or use model.preset = electra."
            raise ConfigError("objective.generator_share", share, rule, remedy) from None

    def build_loss(self, network: GeneratorAndDiscriminator) -> Loss:
        return ReplacedTokensLoss(network, self.config.discriminator_weight)

    def masked_lm(self, network: GeneratorAndDiscriminator) -> MaskedLanguageModel:
        return network.generator

    def validate(self, network: GeneratorAndDiscriminator, held_out: HeldOut) -> dict[str, float]:
        scores = validate_masked_lm(network.generator, held_out)
        batches = chain.from_iterable(held_out.read_sources().values())
        judged = evaluate_replaced_tokens(network, batches, held_out.device, held_out.world)
        return scores | asdict(judged)

    def count_flops_per_token(
        self, architecture: EncoderConfig, segment_length: int, masked_share: float
    ) -> float:
        narrow = self._narrow(architecture)
        predicting = count_flops_per_token(narrow, segment_length, masked_share)
        return predicting + count_token_head_flops_per_token(architecture, segment_length)

    def describe_parameters(self, architecture: EncoderConfig) -> str:
        return (
            f"discriminator {count_parameters(architecture, Discriminator).total:,} and generator "
            f"{count_parameters(self._narrow(architecture)).total:,}, which share their embeddings"
        )

    def list_models(self, network: GeneratorAndDiscriminator) -> list[TrainedModel]:
        title = "A discriminator of replaced tokens (ELECTRA), with its generator saved next to it,"
        return [
            TrainedModel(
                "The generator, which predicts masked tokens,",
                "A masked language model",
                network.generator,
                folder=GENERATOR,
            ),
            TrainedModel(
                "The discriminator", title, network.build_discriminator(), fills_masks=False
            ),
        ]


def detect_replaced(model: GeneratorAndDiscriminator, batch: Batch) -> Detection:
    """Replace the masked tokens by the generator's, and classify all by the discriminator."""
    logits = model.generator(batch.input_ids, batch.context, batch.masked_positions)
    drawn = draw_tokens(logits, batch.masked_draws)
    tokens = replace_tokens(batch, drawn, model.config.pad_token_id)
    scores = model.discriminate(tokens.input_ids, batch.context)
    return Detection(logits, tokens, scores)


@torch.no_grad()
def draw_tokens(logits: Tensor, draws: Tensor) -> Tensor:
    """Draw tokens [M] from the softmax of `logits` [M, V] by inverse transform sampling."""
    cumulative = logits.detach().float().softmax(-1).cumsum(-1)
    # The draws are scaled, because rounding may leave the last cumulative probability below 1.
    reached = draws[:, None] * cumulative[:, -1:]
    return (cumulative <= reached).sum(-1).clamp(max=logits.shape[-1] - 1)


def replace_tokens(batch: Batch, drawn: Tensor, pad_token_id: int) -> Replaced:
    """Put the `drawn` tokens [M] into the masked positions; the others are unchanged."""
    ids, labels = batch.input_ids, batch.masked_labels
    used = labels != IGNORED
    # Unused entries write to an extra position at the end, which is dropped.
    positions = torch.where(used, batch.masked_positions, len(ids))
    replaced = torch.cat([ids, ids.new_zeros(1)]).index_copy(0, positions, drawn)[:-1]
    is_replaced = torch.zeros(len(ids) + 1, dtype=torch.bool, device=ids.device)
    is_replaced = is_replaced.index_copy(0, positions, drawn != labels)[:-1]
    return Replaced(replaced, is_replaced, ids != pad_token_id)


def sum_binary_cross_entropy(scores: Tensor, tokens: Replaced) -> TermSums:
    """Return fp32 sums over all real tokens; `scores` [T] are log odds of being replaced."""
    truth = tokens.is_replaced.float()
    losses = F.binary_cross_entropy_with_logits(scores.float(), truth, reduction="none")
    is_right = (scores.detach() > 0) == tokens.is_replaced
    return TermSums(
        torch.where(tokens.is_real, losses, 0.0).sum(), (is_right & tokens.is_real).sum()
    )


@torch.no_grad()
def predict_replaced(model: GeneratorAndDiscriminator, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the log odds of being replaced of each real token, and its label."""
    found = detect_replaced(model, batch)
    real = found.tokens.is_real
    return found.scores[real].float(), found.tokens.is_replaced[real]


@dataclass(frozen=True)
class ReplacedTokenScores:
    """Scores over all tokens of a validation except padding.

    Attributes:
        rtd_loss: mean -log p of the correct label, in nats.
        rtd_accuracy: the share of correctly classified tokens.
        rtd_base_loss: the loss of predicting the share of replaced tokens for every token.
        rtd_base_accuracy: the accuracy of always predicting "original".
        rtd_recall: the share of replaced tokens that are detected.
        num_judged: the number of tokens.
    """

    rtd_loss: float
    rtd_accuracy: float
    rtd_base_loss: float
    rtd_base_accuracy: float
    rtd_recall: float
    num_judged: int


@torch.no_grad()
def evaluate_replaced_tokens(
    model: GeneratorAndDiscriminator,
    batches: Iterable[Batch],
    device: torch.device,
    world: World = ALONE,
) -> ReplacedTokenScores:
    """Return the scores of `model` on the batches of all ranks."""
    sums = torch.zeros(5, dtype=torch.float64)
    for batch in batches:
        scores, truth = predict_replaced(model, batch.to(device))
        loss = F.binary_cross_entropy_with_logits(scores, truth.float(), reduction="sum")
        said = scores > 0
        counts = ((said == truth).sum(), truth.sum(), (said & truth).sum())
        sums += torch.tensor([loss.item(), *(n.item() for n in counts), len(truth)])
    loss, right, replaced, found, count = world.sum(*sums.tolist())
    share = divide(replaced, count)
    parts = [-p * math.log(p) for p in (share, 1 - share) if p != 0]
    return ReplacedTokenScores(
        rtd_loss=divide(loss, count),
        rtd_accuracy=divide(right, count),
        rtd_base_loss=sum(parts),
        rtd_base_accuracy=1 - share,
        rtd_recall=divide(found, replaced),
        num_judged=int(count),
    )
