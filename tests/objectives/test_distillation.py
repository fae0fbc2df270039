"""The loss of a student beside a teacher, compared with its formula and with DistilBERT's."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maskwright.data.batch import Batch
from maskwright.errors import ConfigError
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.config import DistillConfig
from maskwright.objectives.distillation import DISTILL, DistillationLoss
from maskwright.objectives.mlm import MLM, MaskedTokensLoss
from tests.helpers import SyntheticCorpus
from tests.models import small_model
from tests.objectives.test_mlm import TWO_ROWS, choosing, make_batch

CONFIG = DistillConfig(weight=0.7, temperature=3.0, cosine=0.5)


def make_teacher() -> MaskedLanguageModel:
    return small_model(seed=1, num_hidden_layers=4, initializer_range=0.3)


def batch_of(rate: float = 0.3) -> Batch:
    return make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS, rate)


def test_the_sums_are_those_of_distilbert() -> None:
    """As in transformers' research project: KLDivLoss with T squared, CosineEmbeddingLoss."""
    student, teacher, batch = small_model(initializer_range=0.3).eval(), make_teacher(), batch_of()
    loss = DistillationLoss(student, teacher, CONFIG)
    sums = loss(batch)
    used = batch.masked_labels != -100
    hidden, logits = [], []
    for model in (student, teacher.eval()):
        all_hidden = model.encoder(batch.input_ids, batch.context)
        hidden.append(all_hidden[batch.masked_positions[used]])
        logits.append(model.head(hidden[-1]))
    (s, t), temperature = logits, CONFIG.temperature
    divergence = nn.KLDivLoss(reduction="sum")(
        F.log_softmax(s / temperature, -1), F.softmax(t / temperature, -1)
    )
    cosine = nn.CosineEmbeddingLoss(reduction="sum")(*hidden, torch.ones(len(s)))
    expected = CONFIG.weight * temperature**2 * divergence + 0.5 * cosine
    torch.testing.assert_close(sums[DISTILL].loss, expected)
    assert sums[DISTILL].num_correct == (s.argmax(-1) == t.argmax(-1)).sum()
    torch.testing.assert_close(sums[MLM], MaskedTokensLoss(student)(batch)[MLM])
    assert [term.weight for term in loss.terms.values()] == pytest.approx([0.3, 1.0])


def test_a_teacher_teaches_nothing_to_itself_and_is_never_trained() -> None:
    student, teacher, batch = make_teacher().eval(), make_teacher(), batch_of()
    sums = DistillationLoss(student, teacher, CONFIG)(batch)
    assert sums[DISTILL].loss.item() == pytest.approx(0, abs=1e-4)
    assert sums[DISTILL].num_correct == batch.num_predictions > 0
    sums[DISTILL].loss.backward()
    assert all(p.grad is None and not p.requires_grad for p in teacher.parameters())
    for parameter in student.parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, torch.zeros_like(parameter), atol=1e-4, rtol=0)


def test_a_batch_without_a_masked_token_gives_zero_and_no_nan() -> None:
    student = small_model()
    sums = DistillationLoss(student, make_teacher(), CONFIG)(batch_of(rate=0.0))
    (sums[MLM].loss + sums[DISTILL].loss).backward()
    assert [each.loss.item() for each in sums.values()] == [0, 0]
    assert all(p.grad is not None and not p.grad.any() for p in student.parameters())


def test_with_all_tokens_as_candidates_loss_and_gradient_are_the_same() -> None:
    student, batch = small_model(initializer_range=0.3), batch_of()
    loss = DistillationLoss(student, make_teacher(), CONFIG)
    everything = choosing(batch, torch.randperm(64), torch.zeros(64))
    gradients = list[list[torch.Tensor]]()
    for one in (batch, everything):
        parameters = list(student.parameters())
        gradients.append([*torch.autograd.grad(loss(one)[DISTILL].loss, parameters)])
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


def test_a_candidate_counts_for_as_many_tokens_at_any_temperature() -> None:
    """Two equal tokens are one candidate that represents two."""
    student, teacher, batch = small_model(), make_teacher(), batch_of()
    for model in (student, teacher):
        model.head.decoder.weight.data[41] = model.head.decoder.weight.data[40]
        if model.head.decoder.bias is not None:
            model.head.decoder.bias.data[41] = model.head.decoder.bias.data[40]
    batch = replace(batch, masked_labels=batch.masked_labels.where(batch.masked_labels == -100, 7))
    loss = DistillationLoss(student, teacher, CONFIG)
    offsets = torch.zeros(63)
    offsets[40] = torch.tensor(2.0).log()
    ids = torch.tensor([i for i in range(64) if i != 41])
    found = loss(choosing(batch, ids, offsets))[DISTILL].loss
    torch.testing.assert_close(found, loss(batch)[DISTILL].loss, atol=1e-4, rtol=1e-4)


def test_widths_may_differ_without_a_cosine() -> None:
    narrow, teacher = small_model(hidden_size=8, intermediate_size=16), make_teacher()
    assert DistillationLoss(small_model(), teacher, DistillConfig()).cosine == 1
    assert DistillationLoss(narrow, teacher, DistillConfig()).cosine == 0
    with pytest.raises(ConfigError) as caught:
        DistillationLoss(narrow, teacher, CONFIG)
    assert (caught.value.field, caught.value.value) == ("distill.cosine", 0.5)


def test_vocabularies_must_agree() -> None:
    with pytest.raises(ConfigError) as caught:
        DistillationLoss(small_model(vocab_size=72), make_teacher(), DistillConfig())
    assert (caught.value.field, caught.value.value) == ("model.vocab_size", 72)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"weight": 0.0}, "weight"),
        ({"temperature": 0.0}, "temperature"),
        ({"cosine": -1.0}, "cosine"),
    ],
)
def test_settings_have_limits(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DistillConfig(**values)
    assert caught.value.field == field
