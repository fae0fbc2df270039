"""Our pseudo-log-likelihoods are those that minicons computes with transformers."""

import json
from typing import Any

import pytest

from maskwright.evaluation.pseudo_likelihood import Metric, score_pseudo_likelihood
from tests.golden.pseudo_likelihood import (
    GOLDEN,
    METRICS,
    MODELS,
    TEXTS,
    make_model,
    make_tokenizer,
)

_TOLERANCE = 1e-4

STORED: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_stored_scores_are_of_these_models_and_texts() -> None:
    assert STORED["texts"] == list(TEXTS)
    made = {
        name: (stored["fields"], stored["add_special_tokens"])
        for name, stored in STORED["models"].items()
    }
    assert made == {name: tuple(made) for name, made in MODELS.items()}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", MODELS)
def test_every_token_scores_as_in_minicons(name: str, metric: Metric) -> None:
    tokenizer = make_tokenizer()
    found = score_pseudo_likelihood(
        make_model(name, tokenizer),
        tokenizer,
        TEXTS,
        metric,
        add_special_tokens=MODELS[name].add_special_tokens,
    )
    expected = STORED["models"][name]["scores"][metric]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.scores == pytest.approx(theirs, abs=_TOLERANCE), ours.text


def test_the_metrics_differ_where_a_word_has_several_tokens() -> None:
    for stored in STORED["models"].values():
        one, other = (stored["scores"][metric] for metric in METRICS)
        assert one[0][0] == other[0][0]
        assert abs(sum(one[4]) - sum(other[4])) > 1000 * _TOLERANCE
