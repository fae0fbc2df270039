import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from maskwright.data.batch import Batch, build_batch
from maskwright.data.config import MaskingConfig
from maskwright.data.masking import Masker
from maskwright.data.rows import Row, Rows
from maskwright.objectives.mlm import MaskedLM, predict_masked
from tests.helpers import PAD, SyntheticCorpus, special_ids, vocabulary
from tests.models import small_model

ROW = 16


def make_batch(corpus: SyntheticCorpus, rows: Rows, rate: float = 0.3) -> Batch:
    masker = Masker(MaskingConfig(rate=0.3), vocabulary())
    return build_batch(rows, ROW, corpus, special_ids(), masker, rate, seed=0)


TWO_ROWS = Rows.of([Row(0, 0, ((0, 6), (6, 5))), Row(0, 1, ((11, 14),))])


def test_the_sums_are_those_of_a_plain_computation() -> None:
    model = small_model().eval()
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS)
    sums = MaskedLM(model)(batch)["mlm"]
    used = batch.masked_labels != -100
    logits, labels = predict_masked(model, batch)[used], batch.masked_labels[used]
    expected = -logits.log_softmax(-1)[torch.arange(len(labels)), labels].sum()
    assert int(used.sum()) == batch.num_predictions > 0
    assert sums.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sums.num_correct.item() == int((logits.argmax(-1) == labels).sum())


def test_an_untrained_model_is_as_good_as_chance() -> None:
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS)
    sums = MaskedLM(small_model())(batch)["mlm"]
    assert sums.loss.item() / batch.num_predictions == pytest.approx(math.log(64), rel=0.05)


def test_a_batch_without_a_masked_token_gives_zero_and_no_nan() -> None:
    model = small_model()
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS, rate=0.0)
    assert batch.num_predictions == 0
    sums = MaskedLM(model)(batch)["mlm"]
    sums.loss.backward()
    assert sums.loss.item() == 0
    assert sums.num_correct.item() == 0
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def test_id_0_counts_as_a_label() -> None:
    model = small_model().eval()
    batch = make_batch(SyntheticCorpus([6, 5, 14]), TWO_ROWS)
    labels = torch.where(batch.masked_labels == -100, -100, 0)
    sums = MaskedLM(model)(replace(batch, masked_labels=labels))["mlm"]
    logits = predict_masked(model, batch)[labels == 0]
    expected = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long), reduction="sum")
    assert sums.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sums.loss.item() > 0


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
