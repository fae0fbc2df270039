from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

from maskwright.data.batch import Batch, build_batch
from maskwright.data.config import MaskingConfig
from maskwright.data.masking import IGNORED, Masker
from maskwright.data.rows import Row, Rows
from maskwright.model.electra import GeneratorAndDiscriminator, narrow_config
from maskwright.model.init import initialize
from maskwright.model_folder.folder import save_model
from maskwright.objectives.rtd import (
    ReplacedTokensLoss,
    detect_replaced,
    draw_tokens,
    predict_replaced,
    replace_tokens,
    sum_binary_cross_entropy,
)
from tests.helpers import CLS, PAD, SEP, SyntheticCorpus, special_ids, vocabulary
from tests.model_folder.helpers import tiny_tokenizer
from tests.models import small_config
from tests.twins import randomize

ROW = 16
# The last is short: most of its row is padding.
SPANS = [(0, 14), (14, 14), (28, 5), (33, 9)]
ROWS = Rows.of(Row(0, number, (span,)) for number, span in enumerate(SPANS))


def make_batch(rows: Rows = ROWS, rate: float = 0.3, seed: int = 0, wrap: bool = True) -> Batch:
    masker = Masker(MaskingConfig(rate=0.4), vocabulary())
    corpus = SyntheticCorpus([14, 14, 5, 9])
    return build_batch(rows, ROW, corpus, special_ids(wrap), masker, rate, seed)


def small_pair(disentangled: bool = False) -> GeneratorAndDiscriminator:
    config = small_config(preset="electra", embedding_size=12)
    model = GeneratorAndDiscriminator(config, narrow_config(config, 0.5), disentangled)
    randomize(model, seed=0)
    return model.eval()


def clean_ids(batch: Batch) -> Tensor:
    ids, used = batch.input_ids.clone(), batch.masked_labels != IGNORED
    ids[batch.masked_positions[used]] = batch.masked_labels[used]
    return ids


def test_the_losses_are_those_of_transformers_on_the_same_tokens(tmp_path: Path) -> None:
    model, batch = small_pair(), make_batch()
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    save_model(tmp_path / "generator", model.generator, tokenizer)
    save_model(tmp_path / "model", model.discriminator, tokenizer)
    generator = AutoModelForMaskedLM.from_pretrained(tmp_path / "generator").eval()
    discriminator = AutoModelForPreTraining.from_pretrained(tmp_path / "model").eval()
    sums = ReplacedTokensLoss(model, 50.0)(batch)
    tokens = detect_replaced(model, batch).tokens

    real = (clean_ids(batch) != PAD).view(-1, ROW)
    labels = torch.full((len(ROWS) * ROW,), IGNORED)
    used = batch.masked_labels != IGNORED
    labels[batch.masked_positions[used]] = batch.masked_labels[used]
    shape = {"attention_mask": real.long()}
    with torch.no_grad():
        mlm = generator(batch.input_ids.view(-1, ROW), labels=labels.view(-1, ROW), **shape)
        truth = (tokens.input_ids != clean_ids(batch)).long().view(-1, ROW)
        rtd = discriminator(tokens.input_ids.view(-1, ROW), labels=truth, **shape)
    assert 0 < truth.sum() <= batch.num_predictions
    assert sums["mlm"].loss.item() / batch.num_predictions == pytest.approx(mlm.loss.item(), 1e-5)
    assert sums["rtd"].loss.item() / batch.num_tokens == pytest.approx(rtd.loss.item(), 1e-5)
    right = ((rtd.logits > 0).long() == truth)[real].sum()
    assert sums["rtd"].num_correct.item() == right.item()
    scores, said = predict_replaced(model, batch)
    assert torch.allclose(scores, rtd.logits[real], atol=1e-5)
    assert torch.equal(said, truth[real].bool())


def test_all_tokens_are_judged_but_padding() -> None:
    batch = make_batch()
    drawn = torch.full_like(batch.masked_labels, 7)
    tokens = replace_tokens(batch, drawn, PAD)
    assert tokens.is_real.sum() == batch.num_tokens < len(batch.input_ids)
    special = (clean_ids(batch) == CLS) | (clean_ids(batch) == SEP)
    assert tokens.is_real[special].all()
    assert not tokens.is_replaced[special | ~tokens.is_real].any()
    scores = torch.randn(len(batch.input_ids), generator=torch.Generator().manual_seed(0))
    before = sum_binary_cross_entropy(scores, tokens)
    after = sum_binary_cross_entropy(torch.where(tokens.is_real, scores, 1e4), tokens)
    assert torch.equal(before.loss, after.loss)
    assert torch.equal(before.num_correct, after.num_correct)


@pytest.mark.parametrize("wrap", [True, False])
def test_hidden_places_alone_get_drawn_tokens(wrap: bool) -> None:
    """Unused slots point at slot 0, which holds a token that may be hidden without [CLS]."""
    for seed in range(8):
        batch = make_batch(seed=seed, wrap=wrap)
        used = batch.masked_labels != IGNORED
        assert not used.all()
        drawn = torch.arange(len(used)) % 50 + 5
        tokens = replace_tokens(batch, drawn, PAD)
        expected = clean_ids(batch)
        expected[batch.masked_positions[used]] = drawn[used]
        assert torch.equal(tokens.input_ids, expected)
        assert torch.equal(tokens.is_replaced, expected != clean_ids(batch))


def test_a_drawn_token_that_is_the_hidden_one_is_original() -> None:
    batch = make_batch()
    tokens = replace_tokens(batch, batch.masked_labels.clamp(min=0), PAD)
    assert torch.equal(tokens.input_ids, clean_ids(batch))
    assert not tokens.is_replaced.any()
    others = replace_tokens(batch, batch.masked_labels.clamp(min=0) + 1, PAD)
    assert others.is_replaced.sum() == batch.num_predictions


def test_a_batch_without_a_hidden_token_is_all_original() -> None:
    model, batch = small_pair(), make_batch(rate=0.0)
    sums = ReplacedTokensLoss(model, 50.0)(batch)
    assert sums["mlm"].loss.item() == 0
    assert sums["rtd"].loss.item() > 0
    (sums["mlm"].loss + sums["rtd"].loss).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(grad.isfinite().all() for grad in grads)


def gradients(model: GeneratorAndDiscriminator, term: str) -> set[str]:
    model.zero_grad(set_to_none=True)
    ReplacedTokensLoss(model, 50.0)(make_batch())[term].loss.backward()
    return {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}


def test_the_two_models_meet_in_the_embeddings_alone() -> None:
    model = small_pair()
    shared = "discriminator.encoder.embeddings."
    judged, guessed = gradients(model, "rtd"), gradients(model, "mlm")
    assert {name for name in judged if not name.startswith("discriminator.")} == set()
    assert {name for name in guessed if not name.startswith("generator.")} == {
        name for name in judged if name.startswith(shared)
    }
    assert judged | guessed == dict(model.named_parameters()).keys()
    assert model.generator.encoder.embeddings is model.discriminator.encoder.embeddings
    assert model.generator.head.decoder.weight is model.discriminator.encoder.embeddings.word.weight


def test_disentangled_embeddings_get_no_gradient_from_the_discriminator() -> None:
    model = small_pair(disentangled=True)
    tables = {"word", "position", "token_type"}
    shared = {f"discriminator.encoder.embeddings.{name}.weight" for name in tables}
    judged, guessed = gradients(model, "rtd"), gradients(model, "mlm")
    assert not judged & guessed
    assert not {name for name in judged if name.startswith("generator.")}
    assert {name for name in judged if name.startswith("deltas.")} == {
        f"deltas.{n}" for n in tables
    }
    assert {name for name in guessed if not name.startswith("generator.")} == shared
    assert judged | guessed == dict(model.named_parameters()).keys()


def test_the_folder_of_a_disentangled_discriminator_holds_the_sum(tmp_path: Path) -> None:
    model, batch = small_pair(disentangled=True), make_batch()
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    save_model(tmp_path / "model", model.build_discriminator(), tokenizer)
    stored = load_file(tmp_path / "model/model.safetensors")
    word = model.generator.encoder.embeddings.word.weight
    assert torch.equal(
        stored["electra.embeddings.word_embeddings.weight"], word + model.deltas["word"]
    )
    tokens = detect_replaced(model, batch)
    theirs = AutoModelForPreTraining.from_pretrained(tmp_path / "model").eval()
    real = tokens.tokens.is_real.view(-1, ROW)
    with torch.no_grad():
        expected = theirs(tokens.tokens.input_ids.view(-1, ROW), attention_mask=real.long()).logits
    torch.testing.assert_close(tokens.scores[real.flatten()], expected[real], atol=1e-5, rtol=0)


def test_the_deltas_begin_at_zero_and_leave_the_other_weights_alone() -> None:
    config = small_config(preset="deberta-v2")
    models = [
        GeneratorAndDiscriminator(config, narrow_config(config, 0.5), disentangled)
        for disentangled in (False, True)
    ]
    for model in models:
        initialize(model, seed=3)
    plain, disentangled = (dict(model.named_parameters()) for model in models)
    assert disentangled["deltas.word"].shape == (config.vocab_size, config.hidden_size)
    assert not disentangled["deltas.word"].any()
    assert all(torch.equal(plain[name], disentangled[name]) for name in plain)
    batch = make_batch()
    scores = [detect_replaced(model.eval(), batch).scores for model in models]
    assert torch.equal(*scores)


logits_and_draws = st.tuples(
    st.lists(st.lists(st.floats(-20, 20), min_size=7, max_size=7), min_size=1, max_size=4),
    st.floats(0, 1, exclude_max=True, width=32),
)


@settings(deadline=None)
@given(logits_and_draws)
def test_a_draw_is_the_inverse_of_the_distribution(case: tuple[list[list[float]], float]) -> None:
    logits, draw = torch.tensor(case[0]), torch.tensor(case[1])
    drawn = draw_tokens(logits, draw.expand(len(logits)))
    for row, token in zip(logits.double().softmax(-1), drawn.tolist(), strict=True):
        below, up_to = row[:token].sum().item(), row[: token + 1].sum().item()
        assert below - 1e-6 <= draw.item() <= up_to + 1e-6


def find_row(batch: Batch, number: int, rows: list[int]) -> Tensor:
    """The draws of one row's used slots."""
    slots = len(batch.masked_draws) // len(rows)
    part = slice(rows.index(number) * slots, (rows.index(number) + 1) * slots)
    return batch.masked_draws[part][batch.masked_labels[part] != IGNORED]


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(4)), st.integers(1, 4), st.integers(0, 2**40))
def test_draws_depend_on_seed_epoch_row_and_place_alone(
    order: list[int], count: int, seed: int
) -> None:
    whole, chosen = make_batch(seed=seed), list(order[:count])
    part = make_batch(ROWS.take(np.asarray(chosen)), seed=seed)
    for number in chosen:
        drawn = find_row(part, number, chosen)
        assert torch.equal(drawn, find_row(whole, number, [0, 1, 2, 3]))
        assert len(set(drawn.tolist())) == len(drawn)
    later = make_batch(replace(ROWS, epochs=ROWS.epochs + 1), seed=seed)
    assert not torch.equal(later.masked_draws, whole.masked_draws)
    assert not torch.equal(make_batch(seed=seed + 1).masked_draws, whole.masked_draws)


def test_a_batch_may_be_cut() -> None:
    objective = ReplacedTokensLoss(small_pair(), 50.0)
    whole = objective(make_batch())
    parts = [objective(make_batch(Rows.of([row]))) for row in ROWS]
    for term, sums in whole.items():
        assert sum(p[term].loss.item() for p in parts) == pytest.approx(sums.loss.item(), 1e-5)
        assert sum(p[term].num_correct.item() for p in parts) == sums.num_correct.item()
