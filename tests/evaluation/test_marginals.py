"""Several masks in a pass, and the log-probabilities of each token and of others."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.attention_context import context_from_lengths
from maskwright.errors import InputError
from maskwright.evaluation.marginals import find_marginals
from maskwright.evaluation.pseudo_likelihood import Metric, PseudoLikelihoodScorer, Questions
from maskwright.tokenizer.token_text import show_tokens
from tests.golden.pseudo_likelihood import TEXTS, make_model, make_tokenizer

TOKENIZER = make_tokenizer()
SCORER = PseudoLikelihoodScorer.from_parts(make_model("bert", TOKENIZER), TOKENIZER)


@torch.no_grad()
def predict_slowly(text: str, num_masks: int) -> torch.Tensor:
    """The readable twin: log-probabilities [tokens, V], a text and a row at a time."""
    ids = TOKENIZER.encode(text).ids.tolist()
    num_rows = -(-len(ids) // num_masks)
    found = torch.zeros(len(ids), TOKENIZER.vocab_size)
    for offset in range(num_rows):
        masked = range(offset, len(ids), num_rows)
        row = [TOKENIZER.mask_id if n in masked else token for n, token in enumerate(ids)]
        row = torch.tensor([TOKENIZER.cls_id, *row, TOKENIZER.sep_id])
        logits = SCORER.model(row, context_from_lengths([len(row)]), torch.arange(len(row)))
        for place in masked:
            found[place] = logits[place + 1].log_softmax(-1)
    return found


@pytest.mark.parametrize("num_masks", [1, 2, 3, 100])
def test_masks_of_a_pass_are_scored_as_by_the_twin(num_masks: int):
    for text, found in zip(TEXTS, SCORER(TEXTS, "original", None, num_masks), strict=True):
        ids = found.token_ids
        expected = predict_slowly(text, num_masks)[range(len(ids)), ids] if ids else []
        assert found.scores == pytest.approx([float(x) for x in expected], abs=1e-4)


@given(st.integers(1, 40), st.integers(1, 50))
def test_every_token_is_asked_once_in_few_rows(num_tokens: int, num_masks: int):
    row = [0, *range(100, 100 + num_tokens), 1]
    questions = Questions(mask_id=9)
    questions.add_spread(row, 1, 1 + num_tokens, num_masks)
    assert len(questions.rows) == -(-num_tokens // num_masks)
    asked = [place for places in questions.positions for place in places]
    assert [asked[n] for n in questions.questions] == list(range(1, 1 + num_tokens))
    assert questions.labels == row[1:-1]
    for masked, places in zip(questions.rows, questions.positions, strict=True):
        assert [n for n, token in enumerate(masked) if token == 9] == places
        assert len(places) <= num_masks
        gaps = {b - a for a, b in pairwise(places)}
        assert len(gaps) <= 1


def test_masks_need_a_metric_of_tokens():
    wrong: list[tuple[Metric, int]] = [("within_word_l2r", 2), ("original", 0)]
    for metric, num_masks in wrong:
        with pytest.raises(InputError, match="masks"):
            SCORER("the cat", metric, None, num_masks)


@pytest.mark.parametrize("num_masks", [1, 2])
def test_marginals_are_those_of_the_twin(num_masks: int):
    text = "the cat sleeps"
    [found] = find_marginals(SCORER, [text], 3, num_masks)
    assert not isinstance(found, InputError)
    ids, ordinary = TOKENIZER.encode(text).ids.tolist(), TOKENIZER.ordinary_ids.tolist()
    expected = predict_slowly(text, num_masks)
    assert [one.token for one in found] == show_tokens(TOKENIZER, ids)
    assert [one.position for one in found] == list(range(1, len(ids) + 1))
    for one, scores, label in zip(found, expected, ids, strict=True):
        assert one.score == pytest.approx(float(scores[label]), abs=1e-4)
        others = sorted((n for n in ordinary if n != label), key=lambda n: -float(scores[n]))[:3]
        assert list(one.alternatives) == show_tokens(TOKENIZER, others)
        assert [*one.alternatives.values()] == pytest.approx(scores[others].tolist(), abs=1e-4)


def test_marginals_of_a_long_text_are_an_error():
    short, long = find_marginals(SCORER, ["the cat", "the cat " * 999], 0)
    assert isinstance(long, InputError)
    assert not isinstance(short, InputError)
    assert short[0].alternatives == {}
    with pytest.raises(InputError, match="--alternatives"):
        next(find_marginals(SCORER, ["the"], -1))
