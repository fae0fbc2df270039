import math

import numpy as np
import pytest

from maskwright.errors import InputError
from maskwright.evaluation.pseudo_likelihood import (
    PseudoLikelihoodScorer,
    score_pseudo_likelihood,
    scoring,
)
from maskwright.evaluation.suite_sentences import evaluate_encoded, evaluate_pseudo_likelihood
from maskwright.runs.evaluation_file import DataFacts
from maskwright.tokenizer.tokenizer import EncodedText
from tests.golden.pseudo_likelihood import TEXTS, make_model, make_tokenizer

TOKENIZER = make_tokenizer()
MODEL = make_model("bert", TOKENIZER)
DATA: DataFacts = {"name": "ids", "fingerprint": "f"}


def test_scores_are_those_of_the_texts():
    result = evaluate_pseudo_likelihood(MODEL, TOKENIZER, [*TEXTS, "", " "], name="mine")
    single = score_pseudo_likelihood(MODEL, TOKENIZER, TEXTS)
    total = sum(each.total for each in single)
    # [UNK] stands for nobody knows how many characters: it is in neither sum, as in the suite mlm.
    spelled = total - sum(
        score
        for each in single
        for token_id, score in zip(each.token_ids, each.scores, strict=True)
        if token_id == TOKENIZER.unk_id
    )
    num_characters = len("".join(TEXTS).replace(" ", "").replace("£", ""))
    expected = {
        "pll/pseudo_perplexity": PseudoLikelihoodScorer.compute_perplexity(
            total, sum(each.num_tokens for each in single)
        ),
        "pll/bits_per_character": -spelled / math.log(2) / num_characters,
        "pll/mean_log_likelihood": total / len(TEXTS),
    }
    found = {score.name: score.value for score in result.scores}
    assert found == pytest.approx(expected)
    assert result.data.get("num_texts") == len(TEXTS)
    assert result.data.get("num_tokens") == sum(each.num_tokens for each in single)
    assert result.data.get("num_unknown_tokens") == 1
    for score in result.scores:
        assert score.low is not None
        assert score.high is not None
        assert score.low < score.value < score.high
        is_by_character = score.name == "pll/bits_per_character"
        assert score.num_samples == (num_characters if is_by_character else len(TEXTS))


def test_texts_in_tokens_are_scored_as_they_are():
    """Decoding and encoding again would spell [UNK] and cut words anew."""
    encoded = EncodedText(
        np.array([TOKENIZER.unk_id, *TOKENIZER.encode("cats").ids], np.uint32),
        np.array([True, True, True]),
    )
    with scoring(MODEL, TOKENIZER) as scorer:
        [scores] = scorer.score_encoded([encoded])
    result = evaluate_encoded(MODEL, TOKENIZER, [encoded], DATA)
    found = {score.name: score.value for score in result.scores}
    assert len(scores) == 3
    assert found["pll/mean_log_likelihood"] == pytest.approx(sum(scores))
    assert found["pll/bits_per_character"] == pytest.approx(-sum(scores[1:]) / math.log(2) / 4)
    assert (result.data.get("num_tokens"), result.data.get("num_unknown_tokens")) == (3, 1)
    long = EncodedText(encoded.ids.repeat(30), encoded.word_starts.repeat(30))
    with pytest.raises(InputError, match=r"has 9\d tokens"):
        evaluate_encoded(MODEL, TOKENIZER, [long], DATA)


def test_equal_texts_have_one_score_and_the_metric_is_told():
    one, many = (
        evaluate_pseudo_likelihood(MODEL, TOKENIZER, ["the cat"] * count, "original")
        for count in (1, 5)
    )
    assert [score.value for score in one.scores] == pytest.approx([s.value for s in many.scores])
    assert many.settings["metric"] == "original"


def test_the_data_is_told_by_its_fingerprint():
    one, same, other = (
        evaluate_pseudo_likelihood(MODEL, TOKENIZER, texts).data["fingerprint"]
        for texts in (["the", "cat"], ["the", "", "cat"], ["the cat"])
    )
    assert one == same != other


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_nothing_to_score(texts: list[str]):
    with pytest.raises(InputError, match="no text with a token"):
        evaluate_pseudo_likelihood(MODEL, TOKENIZER, texts)
