import math

import pytest
import torch
from torch import Tensor

from maskwright.data.config import DataConfig
from maskwright.evaluation.data import PinnedText
from maskwright.model.electra import GeneratorAndDiscriminator, ReplacedTokenHead, narrow_config
from maskwright.objectives.rtd import evaluate_replaced_tokens, predict_replaced
from tests.helpers import random_corpus, special_ids, vocabulary
from tests.models import small_config

CPU = torch.device("cpu")


class Constant(ReplacedTokenHead):
    """Says the same of every token."""

    def __init__(self, score: float) -> None:
        super().__init__(small_config())
        self.score = score

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.full((len(hidden),), self.score)


def test_a_constant_discriminator_scores_what_it_must() -> None:
    config = small_config(preset="electra")
    model = GeneratorAndDiscriminator(config, narrow_config(config, 0.5)).eval()

    def batches():
        corpus = random_corpus()
        return PinnedText(
            corpus, DataConfig(max_seq_length=16), special_ids(), vocabulary(), 2000
        ).batches()

    truth = torch.cat([predict_replaced(model, batch)[1] for batch in batches()])
    share = truth.double().mean().item()
    assert 0 < share < 0.5
    assert len(truth) == sum(batch.num_tokens for batch in batches())
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    for score, accuracy, recall in ((-9.0, 1 - share, 0.0), (9.0, share, 1.0)):
        model.discriminator.register_module("head", Constant(score))
        scores = evaluate_replaced_tokens(model, batches(), CPU)
        assert scores.num_judged == len(truth)
        assert scores.rtd_accuracy == pytest.approx(accuracy)
        assert scores.rtd_recall == pytest.approx(recall)
        assert scores.rtd_base_accuracy == pytest.approx(1 - share)
        assert scores.rtd_base_loss == pytest.approx(entropy)
    model.discriminator.register_module("head", Constant(math.log(share / (1 - share))))
    assert evaluate_replaced_tokens(model, batches(), CPU).rtd_loss == pytest.approx(entropy, 1e-5)
