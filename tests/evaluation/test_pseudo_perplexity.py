import math

import pytest

from maskwright.errors import InputError
from maskwright.evaluation.pseudo_likelihood import (
    compute_pseudo_perplexity,
    score_pseudo_likelihood,
)
from maskwright.evaluation.pseudo_perplexity import evaluate_pseudo_likelihood
from tests.golden.pseudo_likelihood import TEXTS, make_model, make_tokenizer

TOKENIZER = make_tokenizer()
MODEL = make_model("bert", TOKENIZER)


def test_scores_are_those_of_the_texts() -> None:
    result = evaluate_pseudo_likelihood(MODEL, TOKENIZER, [*TEXTS, "", " "], name="mine")
    single = score_pseudo_likelihood(MODEL, TOKENIZER, TEXTS)
    total = sum(each.total for each in single)
    expected = {
        "pll/pseudo_perplexity": compute_pseudo_perplexity(
            total, sum(each.num_tokens for each in single)
        ),
        "pll/bits_per_character": -total / math.log(2) / sum(map(len, TEXTS)),
        "pll/mean_log_likelihood": total / len(TEXTS),
    }
    found = {score.name: score.value for score in result.scores}
    assert found == pytest.approx(expected)
    assert result.data["num_texts"] == len(TEXTS)
    assert result.data["num_tokens"] == sum(each.num_tokens for each in single)
    assert result.data["num_unknown_tokens"] == 1
    for score in result.scores:
        assert score.low is not None
        assert score.high is not None
        assert score.low < score.value < score.high
        assert score.num_samples == len(TEXTS)


def test_equal_texts_have_one_score_and_the_metric_is_told() -> None:
    one, many = (
        evaluate_pseudo_likelihood(MODEL, TOKENIZER, ["the cat"] * count, "original")
        for count in (1, 5)
    )
    assert [score.value for score in one.scores] == pytest.approx([s.value for s in many.scores])
    assert many.settings["metric"] == "original"


def test_the_data_is_told_by_its_fingerprint() -> None:
    one, same, other = (
        evaluate_pseudo_likelihood(MODEL, TOKENIZER, texts).data["fingerprint"]
        for texts in (["the", "cat"], ["the", "", "cat"], ["the cat"])
    )
    assert one == same != other


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_nothing_to_score(texts: list[str]) -> None:
    with pytest.raises(InputError, match="no text with a token"):
        evaluate_pseudo_likelihood(MODEL, TOKENIZER, texts)
