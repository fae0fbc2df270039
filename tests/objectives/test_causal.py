"""Masked and causal steps over one model."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.data.batch import Batch
from maskwright.data.config import MaskingConfig
from maskwright.data.loader import LoadedStep, RowSource, StepRequest
from maskwright.data.rows import DataPosition
from maskwright.distributed.world import ALONE, World
from maskwright.inference.fill_mask import FillMask
from maskwright.model.config import AttentionBackend
from maskwright.model_folder.folder import open_model, save_model
from maskwright.objectives.mlm import CausalSteps, MaskedAndCausalLoss
from maskwright.train.log_window import LogWindow
from maskwright.train.reporting import describe_record
from tests.helpers import NUM_SPECIAL, random_corpus, row_source
from tests.model_folder.helpers import tiny_tokenizer
from tests.models import small_model
from tests.train.helpers import Recorder, make_trainer

ROW = 16


@cache
def source(share: float, world: World) -> RowSource:
    return row_source(random_corpus(), masking=MaskingConfig(causal_share=share), world=world)


def load(row: int, share: float = 0.5, world: World = ALONE) -> LoadedStep:
    return source(share, world).load(StepRequest(ROW, 4, 4, 0.15), DataPosition(ROW, 0, row))


def load_causal() -> Batch:
    return next(step for row in range(99) if (step := load(row)).is_causal).micro_batches[0]


def test_a_causal_batch_hides_nothing_and_asks_for_every_word() -> None:
    batch = load_causal()
    labels = torch.full_like(batch.input_ids, -100)
    used = batch.masked_labels != -100
    labels[batch.masked_positions[used]] = batch.masked_labels[used]
    ordinary = batch.input_ids >= NUM_SPECIAL
    assert torch.equal(labels, torch.where(ordinary, batch.input_ids, -100))
    assert batch.num_predictions == int(ordinary.sum()) > 30


@pytest.mark.parametrize("share", [0.0, 0.3, 0.875])
def test_so_many_steps_are_causal_on_every_rank(share: float) -> None:
    kinds = [load(row, share).is_causal for row in range(400)]
    assert np.mean(kinds) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 400))
    other = World(rank=1, size=2, local_rank=1)
    assert kinds[:50] == [load(row, share, other).is_causal for row in range(50)]


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
def test_no_token_sees_what_comes_after_it(backend: AttentionBackend) -> None:
    model = small_model(attention_backend=backend, next_token_prediction=True).eval()
    batch = load_causal()
    context = batch.context
    before = model.encoder(batch.input_ids, context)
    for place in (0, 5, 20):
        ids = batch.input_ids.clone()
        ids[place] = 5 if ids[place] != 5 else 6
        after = model.encoder(ids, context)
        changed = (before - after).abs().amax(-1) > 1e-5
        end = (place // ROW + 1) * ROW
        same = torch.arange(place, end)[
            context.segment_ids[place:end] == context.segment_ids[place]
        ]
        assert changed[same].all()
        assert changed.sum() == len(same)  # nothing before it, and no other segment


def test_the_vector_before_a_token_predicts_it() -> None:
    model, batch = small_model(next_token_prediction=True).eval(), load(0, 0.0).micro_batches[0]
    hidden = model.encoder(batch.input_ids, batch.context)
    used = batch.masked_labels != -100
    places = batch.masked_positions[used]
    expected = model.head(hidden[places - 1])
    logits = model(batch.input_ids, batch.context, places)
    assert torch.allclose(logits, expected, atol=1e-5)
    sums = MaskedAndCausalLoss(model)(batch)
    labels = batch.masked_labels[used]
    loss = -expected.log_softmax(-1)[torch.arange(len(labels)), labels].sum()
    assert sums["mlm"].loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert sums["clm"].loss.item() == 0


def test_a_batch_counts_for_one_of_the_two() -> None:
    objective = MaskedAndCausalLoss(small_model(next_token_prediction=True).eval())
    for batch in (load_causal(), load(0, 0.0).micro_batches[0]):
        counts = [term.count(batch) for term in objective.terms.values()]
        losses = [sums.loss.item() for sums in objective(batch).values()]
        mine, other = (1, 0) if batch.context.is_causal else (0, 1)
        assert counts[mine] == batch.num_predictions > counts[other] == 0
        assert losses[mine] > 0 == losses[other]


def test_means_are_over_the_steps_that_predicted_something() -> None:
    window = LogWindow(MaskedAndCausalLoss(small_model()).terms)
    counts = {"mlm": 10.0, "clm": 0.0}
    window.add([2.0, 5.0, 0.0, 0.0], counts, 1.0)
    window.add([4.0, 0.0, 0.0, 0.0], counts, 3.0)
    means = window.means()
    assert (means["loss"], means["masked_accuracy"], means["grad_norm"]) == (3.0, 0.25, 2.0)
    assert math.isnan(means["causal_loss"])
    assert math.isnan(means["causal_accuracy"])
    record = {"split": "train", "step": 2, "tokens": 99, **means}
    assert "  loss 3.000  0 tokens/s" in describe_record(record, CausalSteps.scores)


def test_both_are_learned() -> None:
    recorder = Recorder()
    trainer = make_trainer(
        None,
        recorder,
        train={"max_steps": 60, "log_every_steps": 20},
        model={"next_token_prediction": True},
        masking={"causal_share": 0.5},
        optim={"learning_rate": 0.01},
    )
    assert list(trainer.terms) == ["mlm", "clm"]
    trainer.fit()
    first, *_, last = recorder.of("train")
    for name in ("loss", "causal_loss"):
        assert last[name] < first[name] - 0.3


def test_the_folder_says_so_and_fills_masks(tmp_path: Path) -> None:
    model = small_model(next_token_prediction=True).eval()
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    save_model(tmp_path / "model", model, tokenizer)
    loaded = open_model(tmp_path / "model").model
    assert loaded.config.next_token_prediction
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "has no next_token_prediction = True" in card
    ids = [2, 10, tokenizer.mask_id, 12, 3]
    best = FillMask(tmp_path / "model").predict_ids([ids], top_k=1)[0][0][0]
    shifted = replace(model.config, next_token_prediction=False)
    plain = type(model).from_tensors(shifted, {n: p.detach() for n, p in model.named_parameters()})
    fill = FillMask.from_parts(plain, tokenizer)
    [batch] = fill.make_batches([ids])
    with torch.inference_mode():
        logits = plain.head(fill.encode(batch))[1]  # of the token before the mask
    assert best.token_id == int(logits[: tokenizer.vocab_size].argmax())
