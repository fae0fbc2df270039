import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.config import DataConfig
from maskwright.evaluation.data import PinnedText
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MaskedLMScores, evaluate_sources
from tests.helpers import (
    MASK,
    NUM_SPECIAL,
    VOCAB_SIZE,
    SyntheticCorpus,
    random_corpus,
    special_ids,
    vocabulary,
)
from tests.models import small_config, small_model

CONFIG = DataConfig(max_seq_length=16)
CPU = torch.device("cpu")


class ConstantModel(MaskedLanguageModel):
    """Says the same of every masked token."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(small_config())
        self.logits = logits

    def forward(
        self, input_ids: Tensor, context: Any, masked_positions: Tensor, *_: Any, **__: Any
    ) -> Tensor:
        return self.logits.expand(len(masked_positions), -1)


def batches_of(corpus: SyntheticCorpus, num_tokens: int = 10**6) -> list[Batch]:
    return list(PinnedText(corpus, CONFIG, special_ids(), vocabulary(), num_tokens).batches())


def evaluate(
    model: MaskedLanguageModel, batches: Iterable[Batch], counts: np.ndarray | None = None
) -> MaskedLMScores:
    counts = np.ones(VOCAB_SIZE, np.int64) if counts is None else counts
    return evaluate_sources(model, {"text": iter(batches)}, counts, CPU)[0]


def labels_of(batches: list[Batch]) -> np.ndarray:
    labels = torch.cat([batch.masked_labels for batch in batches])
    return labels[labels != -100].numpy()


def test_a_constant_loss_comes_out_as_that_constant() -> None:
    for num_tokens in (16, 160, 16 * 33, 10**6):
        batches = batches_of(random_corpus(300), num_tokens)
        scores = evaluate(ConstantModel(torch.zeros(VOCAB_SIZE)), batches)
        assert scores.loss == pytest.approx(math.log(VOCAB_SIZE), rel=1e-6)
        assert scores.num_predictions == len(labels_of(batches))


def test_accuracies_count_the_first_and_the_first_five() -> None:
    logits = torch.zeros(VOCAB_SIZE)
    logits[[10, 20, 30, 40, 50]] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    batches = batches_of(random_corpus(300))
    scores, labels = evaluate(ConstantModel(logits), batches), labels_of(batches)
    assert scores.masked_accuracy == pytest.approx(np.mean(labels == 10))
    assert scores.masked_accuracy_top5 == pytest.approx(
        np.mean(np.isin(labels, [10, 20, 30, 40, 50]))
    )
    assert scores.masked_accuracy_top5 > scores.masked_accuracy > 0


def test_what_is_seen_as_a_mask_is_counted_apart() -> None:
    logits = torch.zeros(VOCAB_SIZE)
    logits[[10, 20, 30, 40, 50]] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    batches = batches_of(random_corpus(300))
    seen = torch.cat([b.input_ids[b.masked_positions][b.masked_labels != -100] for b in batches])
    labels = labels_of(batches)[(seen == MASK).numpy()]
    assert 0.7 < len(labels) / len(seen) < 0.9
    scores = evaluate(ConstantModel(logits), batches)
    assert scores.seen_mask_accuracy == pytest.approx(np.mean(labels == 10)) != 0
    assert scores.seen_mask_accuracy != scores.masked_accuracy
    top5 = np.mean(np.isin(labels, [10, 20, 30, 40, 50]))
    assert scores.seen_mask_accuracy_top5 == pytest.approx(top5) != scores.masked_accuracy_top5


def test_the_unigram_baseline_by_hand() -> None:
    # Every token of the validation text is 9; in training it was 6 of 10, and 7 the other 4.
    corpus = SyntheticCorpus([14] * 20)
    corpus.ids[:] = 9
    counts = np.zeros(VOCAB_SIZE, np.int64)
    counts[[7, 9]] = [4, 6]
    scores = evaluate(small_model().eval(), batches_of(corpus), counts)
    assert scores.unigram_accuracy == 1.0
    # One is added to each of 64 counts: (6 + 1) / (10 + 64).
    assert scores.unigram_loss == pytest.approx(-math.log(7 / 74), rel=1e-9)
    counts[7] = 8
    scores = evaluate(small_model().eval(), batches_of(corpus), counts)
    assert scores.unigram_accuracy == 0.0
    assert scores.unigram_loss == pytest.approx(-math.log(7 / 78), rel=1e-9)


def test_masks_are_the_same_every_time_and_15_percent() -> None:
    first, second = batches_of(random_corpus(300)), batches_of(random_corpus(300))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.input_ids, b.input_ids)
        assert torch.equal(a.masked_positions, b.masked_positions)
    ordinary = int(random_corpus(300).unigram_counts[NUM_SPECIAL:].sum())
    assert len(labels_of(first)) / ordinary == pytest.approx(0.15, abs=0.005)
    masked = torch.cat([batch.input_ids for batch in first])
    assert int((masked == MASK).sum()) / len(labels_of(first)) == pytest.approx(0.8, abs=0.03)


def test_every_row_is_used_once_and_no_second_epoch_begins() -> None:
    corpus = random_corpus(300)
    batches = batches_of(corpus)
    text = sum(batch.num_tokens for batch in batches)
    segments = sum(-(-int(n) // 14) for n in corpus.document_lengths)
    assert text == len(corpus.ids) + 2 * segments


def test_a_smaller_sample_is_the_beginning_of_a_larger_one() -> None:
    few, many = batches_of(random_corpus(300), 16 * 40), batches_of(random_corpus(300))
    assert sum(len(batch.input_ids) for batch in few) == 16 * 40
    assert torch.equal(few[0].input_ids, many[0].input_ids)
