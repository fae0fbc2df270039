"""The suite ``fill`` against a twin that asks for one sentence at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskwright.attention_context import context_from_lengths
from maskwright.errors import InputError
from maskwright.evaluation.suite_sentences import choose_positions, evaluate_fill
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.runs.evaluation_file import DataFacts, SuiteResult
from tests.golden.pseudo_likelihood import make_model, make_tokenizer

TOKENIZER = make_tokenizer()
MODEL = make_model("bert", TOKENIZER)
LONGEST = MODEL.config.max_position_embeddings
COUNTS = np.arange(TOKENIZER.vocab_size)[::-1] * 3
DATA: DataFacts = {"name": "sentences", "fingerprint": "0" * 64}
TEXTS = ["the cat sleeps .", "dogs see trees", "sleep", "the the the cat", "x-ray ! The Dog ."]
SENTENCES = [TOKENIZER.encode(text).ids.tolist() for text in TEXTS * 6]
POSITIONS = choose_positions(SENTENCES, TOKENIZER.ordinary_ids)


def test_a_model_that_predicts_from_the_token_before_is_asked_there():
    config = replace(MODEL.config, next_token_prediction=True)
    model = MaskedLanguageModel.from_tensors(config, dict(MODEL.named_parameters())).eval()
    losses: list[float] = []
    for ids, place in zip(SENTENCES, POSITIONS, strict=True):
        assert place is not None
        row = [TOKENIZER.cls_id, *ids, TOKENIZER.sep_id]
        row[place + 1] = TOKENIZER.mask_id
        context = context_from_lengths([len(row)])
        with torch.no_grad():
            logits = model(torch.tensor(row), context, torch.tensor([place + 1]))[0].double()
        losses.append(float(logits.logsumexp(0) - logits[ids[place]]))
    result = evaluate_fill(model, TOKENIZER, SENTENCES, COUNTS, DATA, True)
    [loss] = [score.value for score in result.scores if score.name == "fill/loss"]
    assert loss == pytest.approx(np.mean(losses), abs=1e-5)


def evaluate(sentences: list[list[int]], wrap: bool = True) -> SuiteResult:
    return evaluate_fill(MODEL, TOKENIZER, sentences, COUNTS, DATA, wrap)


@pytest.mark.parametrize("wrap", [True, False])
def test_one_sentence_at_a_time(wrap: bool):
    losses: list[float] = []
    ranks: list[int] = []
    guesses: list[int] = []
    for ids, place in zip(SENTENCES, POSITIONS, strict=True):
        assert place is not None
        hidden = [*ids]
        hidden[place] = TOKENIZER.mask_id
        row = [TOKENIZER.cls_id, *hidden, TOKENIZER.sep_id] if wrap else hidden
        context = context_from_lengths([len(row)])
        with torch.no_grad():
            logits = MODEL(torch.tensor(row), context, torch.tensor([place + wrap]))[0].double()
        label = ids[place]
        losses.append(float(logits.logsumexp(0) - logits[label]))
        ranks.append(1 + int((logits > logits[label]).sum()))
        guesses.append(1 + sum(int(n) > int(COUNTS[label]) for n in COUNTS))
    accuracy, top5, loss = evaluate(SENTENCES, wrap).scores
    assert accuracy.value == pytest.approx(np.mean(np.array(ranks) == 1))
    assert top5.value == pytest.approx(np.mean(np.array(ranks) <= 5))
    assert loss.value == pytest.approx(np.mean(losses), rel=1e-5)
    assert top5.baseline == pytest.approx(np.mean(np.array(guesses) <= 5))
    assert accuracy.num_samples == len(SENTENCES)
    assert (accuracy.name, top5.name) == ("fill/accuracy", "fill/accuracy_top5")


def test_the_choice_depends_on_the_number_alone():
    ordinary = TOKENIZER.ordinary_ids
    places = choose_positions(SENTENCES, ordinary)
    assert choose_positions(SENTENCES[:7], ordinary) == places[:7]
    # Equal sentences at other places have other tokens hidden, and every token its turn.
    same = [SENTENCES[0]] * 600
    counts = np.bincount([place for place in choose_positions(same, ordinary) if place is not None])
    assert len(counts) == len(SENTENCES[0])
    assert counts.min() > 600 / len(counts) / 1.5


def test_special_tokens_are_never_hidden():
    sentence = [TOKENIZER.unk_id, TOKENIZER.sep_id, SENTENCES[0][0], TOKENIZER.unk_id]
    assert set(choose_positions([sentence] * 50, TOKENIZER.ordinary_ids)) == {2}
    none = [TOKENIZER.unk_id] * 3
    result = evaluate([none, *SENTENCES, []])
    assert result.settings["num_skipped"] == 2
    assert result.scores[0].num_samples == len(SENTENCES)
    with pytest.raises(InputError, match="sentences has no sentence"):
        evaluate([none, []])


def test_what_the_model_has_no_positions_for_is_cut_off():
    long = SENTENCES[0] * LONGEST
    whole, cut = evaluate([long, *SENTENCES]), evaluate([long[: LONGEST - 2], *SENTENCES])
    assert whole.scores == cut.scores


def test_the_loss_of_a_single_sentence_has_no_interval():
    [loss] = [score for score in evaluate(SENTENCES[:1]).scores if score.name == "fill/loss"]
    assert (loss.low, loss.high) == (None, None)
