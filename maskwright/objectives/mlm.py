"""Masked language modeling (Devlin et al. 2019): the sum of -log p(masked token).

Validation computes a few scores on pinned masks, on all ranks, with those of the unigram baseline.
`maskwright.evaluation.suite_mlm` computes all others.

`CausalSteps` is GPT-BERT's mixture (Charpentier and Samuel, "GPT or BERT: why not both?", 2024):
one model, one head, and two kinds of steps. Masked steps predict masked tokens from both sides;
causal steps predict every token from the previous ones. In both, the hidden state of the previous
position predicts a token (``next_token_prediction``), so that both train the same function.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.distributed.world import ALONE, World
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.model.fused import sum_cross_entropy
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.objective import (
    HeldOut,
    Loss,
    Objective,
    Term,
    TermSums,
    TrainedModel,
)
from maskwright.objectives.scores import MASKED_LM_SCORES, ScoreLine, divide

MLM = "mlm"
MLM_TERM = Term(1.0, "loss", "masked_accuracy", attrgetter("num_predictions"))
_TOP = 5


class MaskedTokensLoss(Loss):
    """The loss of a model. M entries for predictions, V vocabulary."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = model
        self.terms = {MLM: MLM_TERM}

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Return sums over the entries whose label is not -100; with candidates, estimates."""
        candidates, labels = choose_among(batch)
        logits = run_model(self.model, batch, candidates=candidates)
        return {MLM: TermSums(*sum_cross_entropy(logits, labels))}


def run_model(model: MaskedLanguageModel, batch: Batch, **more: Any) -> Any:
    """Return what the model returns for a batch, and for `more` arguments of its ``forward``."""
    inputs = (batch.input_ids, batch.context, batch.masked_positions, batch.token_type_ids)
    return model(*inputs, **more)


def choose_among(batch: Batch) -> tuple[tuple[Tensor, Tensor, Tensor] | None, Tensor]:
    """Return the arguments of `MLMHead.choose` (None without candidates), and the labels [M]."""
    labels, ids, offsets = batch.masked_labels, batch.candidate_ids, batch.candidate_offsets
    if ids is None or offsets is None:
        return None, labels
    last = torch.where(labels == IGNORED, IGNORED, len(ids))
    return (ids, offsets, labels.clamp_min(0)), last


class MaskedTokens(Objective[MaskedLanguageModel]):
    """Masked language modeling, the default objective."""

    scores = MASKED_LM_SCORES
    counts = (("num_predictions", "masked tokens"),)
    notes = (
        "{num_predictions:,} predictions after {tokens:,} tokens of training. The unigram "
        "baseline\npredicts the most frequent token (accuracy) or the token frequencies (loss)."
    )

    def build_network(self, architecture: EncoderConfig) -> MaskedLanguageModel:
        return MaskedLanguageModel(architecture)

    def build_loss(self, network: MaskedLanguageModel) -> Loss:
        return MaskedTokensLoss(network)

    def masked_lm(self, network: MaskedLanguageModel) -> MaskedLanguageModel:
        return network

    def validate(self, network: MaskedLanguageModel, held_out: HeldOut) -> dict[str, float]:
        return validate_masked_lm(network, held_out)

    def count_flops_per_token(
        self, architecture: EncoderConfig, segment_length: int, masked_share: float
    ) -> float:
        return count_flops_per_token(architecture, segment_length, masked_share)

    def describe_parameters(self, architecture: EncoderConfig) -> str:
        parts = count_parameters(architecture)
        return f"embeddings {parts.embeddings:,}, blocks {parts.blocks:,}, head {parts.head:,}"

    def list_models(self, network: MaskedLanguageModel) -> list[TrainedModel]:
        return [TrainedModel("The model", "A masked language model", network)]


@dataclass(frozen=True)
class MaskedLMScores:
    """Scores over all predictions of a validation.

    Attributes:
        loss: mean -log p of the masked tokens, in nats.
        masked_accuracy: the share of masked tokens that the model predicts as most probable.
        masked_accuracy_top5: the share that are among the five most probable.
        seen_mask_accuracy, seen_mask_accuracy_top5: the same on tokens replaced by [MASK]; of the
            other masked tokens, unchanged ones can be copied.
        unigram_loss: the loss of predicting the training text's token frequencies.
        unigram_accuracy: the accuracy of always predicting its most frequent token. Its expectation
            on [MASK] is the same, because what replaces a token does not depend on the token.
        num_predictions: the number of masked tokens.
    """

    loss: float
    masked_accuracy: float
    masked_accuracy_top5: float
    seen_mask_accuracy: float
    seen_mask_accuracy_top5: float
    unigram_loss: float
    unigram_accuracy: float
    num_predictions: int


@torch.no_grad()
def predict_masked(model: MaskedLanguageModel, batch: Batch) -> Tensor:
    """Return logits [M, V] in fp32 for the masked positions of a batch, unused ones included."""
    return run_model(model, batch).float()


def validate_masked_lm(model: MaskedLanguageModel, held_out: HeldOut) -> dict[str, float]:
    """Return the scores over all text and, if it has several sources, ``loss/NAME`` and others."""
    where = (held_out.device, held_out.world)
    total, each = evaluate_sources(model, held_out.read_sources(), held_out.label_counts, *where)
    if len(each) == 1:
        return asdict(total)
    return asdict(total) | {
        f"{score}/{name}": value
        for name, scores in each.items()
        for score, value in asdict(scores).items()
    }


def evaluate_sources(
    model: MaskedLanguageModel,
    batches: Mapping[str, Iterator[Batch]],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World = ALONE,
) -> tuple[MaskedLMScores, dict[str, MaskedLMScores]]:
    """Return the scores over all sources, and those of each, on the batches of all ranks.

    The logits of a batch are freed before the next one.

    Args:
        model: its config has the id of [MASK].
        unigram_counts: [V] token counts of the training text; add-one smoothing is applied.
    """
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
    """Return sums over the predictions of all ranks, for `_to_scores`."""
    frequencies = torch.from_numpy(unigram_counts).double() + 1
    unigram_log = (frequencies / frequencies.sum()).log()
    most_frequent = frequencies.argmax()
    sums = torch.zeros(8, dtype=torch.float64)
    count = 0
    for batch in batches:
        batch = batch.to(device)
        used = batch.masked_labels != IGNORED
        labels = batch.masked_labels[used]
        logits = predict_masked(model, batch)[used]
        best = logits.topk(_TOP, dim=-1).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        is_mask = batch.input_ids[batch.masked_positions[used]] == model.config.mask_token_id
        top5 = best.any(dim=1)
        seen = [(best[:, 0] & is_mask).sum(), (top5 & is_mask).sum(), is_mask.sum()]
        labels = labels.cpu()
        sums += torch.stack(
            [
                loss.cpu().double(),
                best[:, 0].sum().cpu(),
                top5.sum().cpu(),
                -unigram_log[labels].sum(),
                (labels == most_frequent).sum(),
                *(one.cpu() for one in seen),
            ]
        )
        count += len(labels)
    return [*world.sum(*sums.tolist(), count)]


def _to_scores(sums: Sequence[float]) -> MaskedLMScores:
    *totals, seen_correct, seen_top5, num_seen, count = sums
    loss, accuracy, top5, unigram_loss, unigram_accuracy = (divide(t, count) for t in totals)
    seen = (divide(seen_correct, num_seen), divide(seen_top5, num_seen))
    return MaskedLMScores(
        loss, accuracy, top5, *seen, unigram_loss, unigram_accuracy, num_predictions=int(count)
    )


CLM = "clm"


def _count_causal(batch: Batch) -> int:
    return batch.num_predictions if batch.context.is_causal else 0


def _count_masked(batch: Batch) -> int:
    return 0 if batch.context.is_causal else batch.num_predictions


class MaskedAndCausalLoss(MaskedTokensLoss):
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
        return MaskedAndCausalLoss(network)
