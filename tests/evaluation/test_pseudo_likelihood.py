import math
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.attention_context import context_from_lengths
from maskwright.errors import InputError, ModelFolderError
from maskwright.evaluation.pseudo_likelihood import (
    Metric,
    PseudoLikelihood,
    PseudoLikelihoodScorer,
    Questions,
    find_ends,
    score_pseudo_likelihood,
    scoring,
)
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.train.config import FixedPrecision
from tests.golden.pseudo_likelihood import METRICS, MODELS, TEXTS, make_model, make_tokenizer

TOKENIZER = make_tokenizer()
MODEL = make_model("bert", TOKENIZER)
SCORER = PseudoLikelihoodScorer.from_parts(MODEL, TOKENIZER)
metrics = pytest.mark.parametrize("metric", METRICS)
sentences = st.lists(st.sampled_from(["the cat", "sleeps", "dog?", "", "x-ray"]), max_size=3)


@torch.no_grad()
def score_slowly(
    model: MaskedLanguageModel, text: str, metric: Metric, wrap: bool = True
) -> list[float]:
    """The readable twin: one token, one pass, all logits."""
    encoded = TOKENIZER.encode(text)
    ids = encoded.ids.tolist()
    row = [TOKENIZER.cls_id, *ids, TOKENIZER.sep_id] if wrap else ids
    word_of = encoded.word_starts.cumsum()
    scores: list[float] = []
    for token, label in enumerate(ids):
        masked = torch.tensor(row)
        for other in range(len(ids)):
            same_word = metric == "within_word_l2r" and word_of[other] == word_of[token]
            if other == token or (same_word and other > token):
                masked[other + wrap] = TOKENIZER.mask_id
        everywhere = torch.arange(len(row))
        logits = model(masked, context_from_lengths([len(row)]), everywhere)
        scores.append(logits[token + wrap].log_softmax(-1)[label].item())
    return scores


@metrics
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_the_readable_twin(name: str, metric: Metric):
    wrap = MODELS[name].add_special_tokens
    model = make_model(name, TOKENIZER)
    found = score_pseudo_likelihood(
        model, TOKENIZER, TEXTS, metric, add_special_tokens=wrap, batch_tokens=50
    )
    for text, result in zip(TEXTS, found, strict=True):
        assert result.token_ids == TOKENIZER.encode(text).ids.tolist()
        assert result.scores == pytest.approx(score_slowly(model, text, metric, wrap), abs=1e-5)


@metrics
@settings(max_examples=10, deadline=None)
@given(st.lists(sentences.map(" ".join), max_size=4), st.sampled_from([1, 20, 100]))
def test_scores_depend_neither_on_batches_nor_on_neighbours(
    metric: Metric, texts: list[str], batch_tokens: int
):
    texts = [*texts, *texts[:2]]
    together = SCORER(texts, metric, batch_tokens)
    assert [result.text for result in together] == texts
    for text, result in zip(texts, together, strict=True):
        [alone] = SCORER(text, metric)
        assert result.scores == pytest.approx(alone.scores, abs=1e-5)
        assert result.num_tokens == len(TOKENIZER.encode(text).ids)


@metrics
def test_tokens_that_are_given_are_seen_and_not_scored(metric: Metric):
    texts = [TOKENIZER.encode(text) for text in ("x-ray the cat", "x-ray the cat", "dogs see")]
    whole = SCORER.score_encoded(texts, metric)
    assert SCORER.score_encoded(texts, metric, None, [2, 0, 9]) == [whole[0][2:], whole[1], []]


def test_equal_questions_are_computed_once(monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    encode = SCORER.encode

    def count(batch, wanted=None):
        seen.extend(batch.numbers)
        return encode(batch, wanted)

    monkeypatch.setattr(SCORER, "encode", count)
    SCORER(["the cat see", "the dog see", "the cat see", "The Cat See"])
    assert len(seen) == 3 + 2  # the cat and the dog are hidden by the same question


def test_a_text_without_tokens_scores_nothing():
    [empty, blank] = SCORER(["", " \n"])
    assert (empty.total, empty.num_tokens, blank.scores) == (0.0, 0, [])
    assert SCORER([]) == []


def test_special_tokens_in_a_text_are_ordinary_text():
    [result] = SCORER("[MASK] sleep")
    assert TOKENIZER.mask_id not in result.token_ids


def test_a_long_text_is_named_and_the_others_are_scored():
    long = "sleep " * 70
    message = (
        r'"sleep sleep .*…" has 72 tokens, more than the model\'s max_position_embeddings = 64'
    )
    with pytest.raises(InputError, match=message):
        SCORER(["the cat", long])
    first, error, last = SCORER.attempt(["the cat", long, "dog"])
    assert isinstance(first, PseudoLikelihood)
    assert isinstance(error, InputError)
    assert isinstance(last, PseudoLikelihood)
    assert last.scores == SCORER(["the cat", "dog"])[1].scores  # what the long text left behind


def test_an_unknown_metric_is_refused():
    unknown = cast(Metric, "salazar")
    with pytest.raises(InputError, match="metric = salazar must be original or within_word_l2r"):
        SCORER("the", unknown)


def test_a_model_in_training_stays_so_and_is_scored_without_dropout():
    model = make_model("bert", TOKENIZER).train()
    one, other = (score_pseudo_likelihood(model, TOKENIZER, TEXTS) for _ in range(2))
    assert model.training
    assert [result.scores for result in one] == [result.scores for result in other]


def test_scores_are_of_full_precision_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        [found] = SCORER(TEXTS[0])
    assert found.scores == SCORER(TEXTS[0])[0].scores


def test_in_half_precision_scores_are_nearly_the_same():
    texts = TOKENIZER.encode_batch(["the cat sleeps", "dogs see the tree ."])
    scores: list[list[float]] = []
    precisions: tuple[FixedPrecision, ...] = ("fp32", "bf16")
    for precision in precisions:
        with scoring(MODEL, TOKENIZER, precision=precision) as scorer:
            scores += [sum(scorer.score_encoded(texts), list[float]())]
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(scores[1], rel=0.01)


def test_the_tokenizer_says_whether_inputs_are_wrapped():
    """This one has no post-processor, so it adds nothing."""
    [found] = score_pseudo_likelihood(MODEL, TOKENIZER, TEXTS[:1])
    assert found.scores == pytest.approx(
        score_slowly(MODEL, TEXTS[0], "within_word_l2r", False), abs=1e-5
    )


def test_damaged_weights_are_named():
    model = make_model("bert", TOKENIZER)
    with torch.no_grad():
        model.head.decoder.weight.fill_(float("nan"))
    with pytest.raises(ModelFolderError, match="no finite probabilities"):
        score_pseudo_likelihood(model, TOKENIZER, TEXTS)


def test_pseudo_perplexity_is_over_tokens():
    assert PseudoLikelihoodScorer.compute_perplexity(-9.0, 3) == pytest.approx(math.exp(3.0))
    assert PseudoLikelihoodScorer.compute_perplexity(-1e6, 3) == math.inf


MASK = 4
texts = st.lists(st.tuples(st.integers(5, 9), st.booleans()), max_size=12)


@given(texts)
def test_a_token_is_hidden_with_the_later_tokens_of_its_word(text: list[tuple[int, bool]]):
    starts = [start for _, start in text]
    words = [sum(starts[: place + 1]) for place in range(len(starts))]
    expected = [
        place + sum(word == words[place] for word in words[place:]) for place in range(len(words))
    ]
    assert find_ends(starts, "within_word_l2r") == expected
    assert find_ends(starts, "original") == [place + 1 for place in range(len(starts))]


def test_a_question_is_the_row_with_masks_and_the_place():
    questions = Questions(MASK)
    questions.add_text([2, 7, 8, 9, 3], 1, [True, True, False], "within_word_l2r")
    assert questions.rows == [[2, 4, 8, 9, 3], [2, 7, 4, 4, 3], [2, 7, 8, 4, 3]]
    assert (questions.positions, questions.labels) == ([[1], [2], [3]], [7, 8, 9])


@given(st.lists(texts, max_size=6))
def test_every_token_has_its_answer_and_no_question_occurs_twice(
    all_texts: list[list[tuple[int, bool]]],
):
    questions = Questions(MASK)
    for text in all_texts:
        ids, starts = [token for token, _ in text], [start for _, start in text]
        questions.add_text([2, *ids, 3], 1, starts, "within_word_l2r")
    assert questions.labels == [token for text in all_texts for token, _ in text]
    assert len(questions.questions) == len(questions.labels)
    assert len({tuple(row) for row in questions.rows}) == len(questions.rows)
    for row, [place] in zip(questions.rows, questions.positions, strict=True):
        assert row[place] == MASK
        assert row[place - 1] != MASK
