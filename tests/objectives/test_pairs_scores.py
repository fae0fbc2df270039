"""Scores of pairs on held-out rows."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from maskwright.attention_context import AttentionContext
from maskwright.data.batch import Batch
from maskwright.data.config import DataConfig, PairKind
from maskwright.errors import InputError
from maskwright.evaluation.data import PinnedText
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel, PretrainingLogits
from maskwright.objectives.pairs import evaluate_sentence_pairs, predict_pairs
from tests.helpers import SyntheticCorpus, random_corpus, special_ids, vocabulary
from tests.models import small_config, small_model

CPU = torch.device("cpu")
CONFIG = replace(small_config(32, preset="bert"), sentence_pair_head=True)


class SayingModel(MaskedLanguageModel):
    """Says the same of every pair."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(CONFIG)
        self.logits = logits

    def forward(
        self,
        input_ids: Tensor,
        context: AttentionContext,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
        pair_positions: Tensor | None = None,
        candidates: object = None,
        with_hidden: bool = False,
    ) -> PretrainingLogits:
        assert token_type_ids is not None
        assert pair_positions is not None
        masked = torch.zeros(len(masked_positions), 64)
        return PretrainingLogits(masked, self.logits.expand(len(pair_positions), -1))


def batches_of(
    kind: PairKind | None, corpus: SyntheticCorpus | None = None, num_tokens: int = 10**5
) -> list[Batch]:
    config = DataConfig(max_seq_length=32, pairs=kind)
    corpus = corpus or random_corpus(300, 60)
    return list(PinnedText(corpus, config, special_ids(), vocabulary(), num_tokens).batches())


def labels_of(batches: list[Batch]) -> Tensor:
    labels = torch.cat([b.pair_labels for b in batches if b.pair_labels is not None])
    return labels[labels != -100].double()


@pytest.mark.parametrize("kind", ["next", "order"])
def test_scores_are_means_over_the_labels(kind: PairKind) -> None:
    batches = batches_of(kind)
    labels = labels_of(batches)
    assert len(labels) > 200
    for logits, share in ((torch.tensor([0.0, 1.0]), 1.0), (torch.tensor([1.0, 0.0]), 0.0)):
        scores = evaluate_sentence_pairs(SayingModel(logits), batches, CPU)
        right = labels.mean().item() if share else 1 - labels.mean().item()
        assert scores.num_pairs == len(labels)
        assert scores.pair_accuracy == pytest.approx(right)
        assert scores.pair_loss == pytest.approx(math.log(1 + math.e) - right)
        assert scores.pair_baseline == pytest.approx(max(right, 1 - right))


def test_a_model_that_knows_nothing_says_so() -> None:
    model = MaskedLanguageModel(CONFIG)
    initialize(model, 0)
    scores = evaluate_sentence_pairs(model.eval(), batches_of("next"), CPU)
    assert scores.pair_loss == pytest.approx(math.log(2), abs=0.01)
    assert scores == evaluate_sentence_pairs(model, batches_of("next"), CPU)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_scores_of_no_pair_are_undefined() -> None:
    batches = batches_of("next", SyntheticCorpus([3, 2, 3]))
    scores = evaluate_sentence_pairs(SayingModel(torch.zeros(2)), batches, CPU)
    undefined = dict.fromkeys(vars(scores), math.nan)
    assert vars(scores) == pytest.approx({**undefined, "num_pairs": 0}, nan_ok=True)


def test_what_has_no_pairs_is_one_line() -> None:
    with pytest.raises(InputError, match=r"the rows had no pairs of texts: train with data\.pairs"):
        predict_pairs(SayingModel(torch.zeros(2)), batches_of(None)[0])
    with pytest.raises(InputError, match="the model had no pairs of texts"):
        predict_pairs(small_model(max_seq_length=32, preset="bert"), batches_of("next")[0])
