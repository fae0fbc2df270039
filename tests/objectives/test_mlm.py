from dataclasses import replace

import numpy as np
import pytest
import torch

from maskwright.data.batch import Batch, build_batch
from maskwright.data.config import MaskingConfig
from maskwright.data.loader import StepRequest
from maskwright.data.masking import Masker
from maskwright.data.rows import DataPosition, Row, Rows
from maskwright.objectives.mlm import MaskedTokensLoss, predict_masked
from tests.helpers import PAD, SyntheticCorpus, random_corpus, row_source, special_ids, vocabulary
from tests.models import small_model

ROW = 16


def make_batch(corpus: SyntheticCorpus, rows: Rows, rate: float = 0.3) -> Batch:
    masker = Masker(MaskingConfig(rate=0.3), vocabulary())
    return build_batch(rows, ROW, corpus, special_ids(), masker, rate, seed=0)


TWO_ROWS = Rows.of([Row(0, 0, ((0, 6), (6, 5))), Row(0, 1, ((11, 14),))])


def test_the_sums_are_those_of_a_plain_computation() -> None:
    model = small_model().eval()
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS)
    sums = MaskedTokensLoss(model)(batch)["mlm"]
    used = batch.masked_labels != -100
    logits, labels = predict_masked(model, batch)[used], batch.masked_labels[used]
    expected = -logits.log_softmax(-1)[torch.arange(len(labels)), labels].sum()
    assert int(used.sum()) == batch.num_predictions > 0
    assert sums.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sums.num_correct.item() == int((logits.argmax(-1) == labels).sum())


def test_a_batch_without_a_masked_token_gives_zero_and_no_nan() -> None:
    model = small_model()
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS, rate=0.0)
    assert batch.num_predictions == 0
    sums = MaskedTokensLoss(model)(batch)["mlm"]
    sums.loss.backward()
    assert sums.loss.item() == 0
    assert sums.num_correct.item() == 0
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def choosing(batch: Batch, ids: torch.Tensor, offsets: torch.Tensor) -> Batch:
    return replace(batch, candidate_ids=ids, candidate_offsets=offsets)


def test_with_all_tokens_as_candidates_loss_and_gradient_are_the_same() -> None:
    model = small_model()
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS)
    everything = choosing(batch, torch.randperm(64), torch.zeros(64))
    gradients = list[list[torch.Tensor]]()
    for one in (batch, everything):
        sums = MaskedTokensLoss(model)(one)["mlm"]
        parameters = list(model.parameters())
        gradients.append(list(torch.autograd.grad(sums.loss, parameters)))
    assert sums.num_correct == MaskedTokensLoss(model)(batch)["mlm"].num_correct
    torch.testing.assert_close(gradients[0], gradients[1])


def test_candidates_stand_for_the_whole_vocabulary_on_average() -> None:
    source = row_source(random_corpus())
    model = small_model().eval()
    [batch] = source.load(StepRequest(ROW, 4, 4, 0.15), DataPosition(ROW)).micro_batches
    used = batch.masked_labels != -100
    labels = batch.masked_labels[used]
    logits = predict_masked(model, batch)[used] * 20  # far from even
    means = torch.zeros(len(labels), dtype=torch.float64)
    num_steps = 400
    for number in range(num_steps):
        request = StepRequest(ROW, 4, 4, 0.15, num_candidates=24)
        [drawn] = source.load(request, DataPosition(ROW, 0, number)).micro_batches
        ids, offsets = drawn.candidate_ids, drawn.candidate_offsets
        assert ids is not None
        assert offsets is not None
        scores = (logits[:, ids] + offsets).double()
        scores = scores.masked_fill(labels[:, None] == ids, -torch.inf).exp().sum(-1)
        means += scores / num_steps
    others = logits.double().scatter(1, labels[:, None], -torch.inf).exp().sum(-1)
    torch.testing.assert_close(means, others, rtol=0.15, atol=0.0)


@pytest.mark.parametrize("preset", ["bert", "modernbert"])
def test_no_document_sees_its_neighbours_nor_the_padding(preset: str) -> None:
    model = small_model(preset=preset, num_hidden_layers=3, global_attn_every_n_layers=3).eval()
    corpus = SyntheticCorpus([6, 5, 14])
    batch = make_batch(corpus, TWO_ROWS)
    before = model.encoder(batch.input_ids, batch.context)
    # Slots 0..7 are document 0 with [CLS] and [SEP], 8..14 document 1, 15 padding; then row 1.
    assert batch.input_ids[15] == PAD
    for changed in (range(8), range(8, 15), range(15, 16), range(16, 32)):
        ids = batch.input_ids.clone()
        ids[list(changed)] = torch.from_numpy(np.arange(len(changed))) % 40 + 20
        after = model.encoder(ids, batch.context)
        others = [slot for slot in range(32) if slot not in changed]
        assert torch.allclose(before[others], after[others], atol=1e-6)
        assert not torch.allclose(before[list(changed)], after[list(changed)], atol=1e-3)
