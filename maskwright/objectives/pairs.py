"""Masked tokens and pairs of texts together, as in BERT (Devlin et al. 2019) and ALBERT (Lan et al.
2020): the sum of both mean losses, from one pass through the encoder.

The pairs of held-out rows are a function of a fixed seed, as masks are, so two validations differ
only by the model. About half of the labels are 1; the baseline is the share of the larger class.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import chain
from operator import attrgetter

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.data.pairs import pairs_per_row
from maskwright.distributed.world import ALONE, World
from maskwright.errors import InputError, ShardError
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_flops_per_token
from maskwright.model.fused import sum_cross_entropy
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import (
    MLM,
    MLM_TERM,
    MaskedTokens,
    MaskedTokensLoss,
    choose_among,
    run_model,
)
from maskwright.objectives.objective import HeldOut, Loss, Term, TermSums
from maskwright.objectives.scores import ScoreLine, divide

PAIRS = "pairs"
PAIR_TERM = Term(1.0, "pair_loss", "pair_accuracy", attrgetter("num_pairs"))


class SentencePairsLoss(MaskedTokensLoss):
    """The loss of a model with a ``sentence_pair_head``, on rows with ``data.pairs``."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__(model)
        self.terms = {MLM: MLM_TERM, PAIRS: PAIR_TERM}

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Return sums over the entries of each kind whose label is not -100."""
        assert batch.pair_labels is not None, "rows without pairs"
        candidates, labels = choose_among(batch)
        more = {"pair_positions": batch.pair_positions, "candidates": candidates}
        logits = run_model(self.model, batch, **more)
        return {
            MLM: TermSums(*sum_cross_entropy(logits.masked, labels)),
            PAIRS: TermSums(*sum_cross_entropy(logits.pairs, batch.pair_labels)),
        }


class SentencePairs(MaskedTokens):
    """Masked language modeling, and the classification of pairs by whether the texts follow."""

    scores = (
        *MaskedTokens.scores,
        ScoreLine(
            "pair_accuracy",
            "pairs of texts, accuracy",
            headline="pair accuracy",
            baseline="pair_baseline",
            baseline_name="always the same answer",
        ),
    )
    counts = (*MaskedTokens.counts, ("num_pairs", "pairs of texts"))

    def build_loss(self, network: MaskedLanguageModel) -> Loss:
        return SentencePairsLoss(network)

    def check_held_out(self, held_out: HeldOut) -> None:
        super().check_held_out(held_out)
        sources = held_out.read_sources(pairs=True)
        if not any(batch.num_pairs for batch in chain.from_iterable(sources.values())):
            raise ShardError(
                f"{' + '.join(sources)} holds too little validation text for pairs. Prepare it "
                "with a larger corpus.valid_fraction."
            )

    def validate(self, network: MaskedLanguageModel, held_out: HeldOut) -> dict[str, float]:
        scores = super().validate(network, held_out)
        batches = chain.from_iterable(held_out.read_sources(pairs=True).values())
        pairs = evaluate_sentence_pairs(network, batches, held_out.device, held_out.world)
        return scores | asdict(pairs)

    def count_flops_per_token(
        self, architecture: EncoderConfig, segment_length: int, masked_share: float
    ) -> float:
        pair_share = pairs_per_row(segment_length) / segment_length
        return count_flops_per_token(architecture, segment_length, masked_share, pair_share)


@dataclass(frozen=True)
class SentencePairScores:
    """Scores over all pairs of a validation.

    Attributes:
        pair_loss: mean -log p of the correct label, in nats; log 2 = 0.693 is chance.
        pair_accuracy: the share of correct predictions.
        pair_baseline: the share of the more frequent label.
        num_pairs: the number of labeled pairs.
    """

    pair_loss: float
    pair_accuracy: float
    pair_baseline: float
    num_pairs: int


def predict_pairs(model: MaskedLanguageModel, batch: Batch) -> Tensor:
    """Return logits [P, 2] in fp32 for the pairs of a batch, unused entries included.

    The input has masked tokens, as in pretraining.

    Raises:
        InputError: the model has no head for pairs, or the batch holds none.
    """
    if model.config.sentence_pair_head and batch.pair_positions is not None:
        unmasked = replace(batch, masked_positions=batch.masked_positions[:0])  # predicts no tokens
        with torch.no_grad():
            logits = run_model(model, unmasked, pair_positions=batch.pair_positions)
        return logits.pairs.float()
    part = "rows" if model.config.sentence_pair_head else "model"
    raise InputError(f"the {part} had no pairs of texts: train with data.pairs = next or order")


def evaluate_sentence_pairs(
    model: MaskedLanguageModel, batches: Iterable[Batch], device: torch.device, world: World = ALONE
) -> SentencePairScores:
    """Return the scores of `model`, in evaluation mode, on the batches of all ranks."""
    sums = torch.zeros(3, dtype=torch.float64)
    count = 0
    for batch in batches:
        batch = batch.to(device)
        logits = predict_pairs(model, batch)
        assert batch.pair_labels is not None, "predict_pairs raises for a batch without pairs"
        used = batch.pair_labels != IGNORED
        logits, labels = logits[used], batch.pair_labels[used]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        correct = (logits.argmax(-1) == labels).sum()
        found = (loss, correct, labels.sum())
        sums += torch.stack([one.cpu().double() for one in found])  # Apple's GPUs have no float64
        count += len(labels)
    *totals, count = world.sum(*sums.tolist(), count)
    loss, accuracy, second = (divide(total, count) for total in totals)
    baseline = max(second, 1 - second)
    return SentencePairScores(loss, accuracy, baseline, int(count))
