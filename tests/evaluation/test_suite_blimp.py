import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.errors import InputError
from maskwright.evaluation.data import MinimalPair
from maskwright.evaluation.intervals import wilson_interval
from maskwright.evaluation.pseudo_likelihood import Metric, score_pseudo_likelihood
from maskwright.evaluation.suite_blimp import (
    choose_pairs,
    evaluate_minimal_pairs,
    fingerprint_pairs,
    list_predictions,
    score_pair,
    summarize_credits,
)
from maskwright.runs.evaluation_file import SuiteResult
from tests.golden.pseudo_likelihood import METRICS, make_model, make_tokenizer

TOKENIZER = make_tokenizer()
MODEL = make_model("bert", TOKENIZER)
PHRASES = ["the cat", "sleeps", "sleep", "dogs see", "x-ray", "The Cat", "tree ."]

pair_lists = st.lists(
    st.builds(
        MinimalPair,
        st.sampled_from(PHRASES),
        st.sampled_from(PHRASES),
        st.sampled_from("pq"),
        st.sampled_from("xyz"),
        st.just("syntax"),
    ),
    min_size=1,
    max_size=8,
)


def evaluate(pairs: list[MinimalPair], metric: Metric = "within_word_l2r") -> dict[str, float]:
    result = evaluate_minimal_pairs(MODEL, TOKENIZER, pairs, metric)
    return {score.name: score.value for score in result.scores}


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=10, deadline=None)
@given(pair_lists)
def test_swapped_pairs_score_the_rest(metric: Metric, pairs: list[MinimalPair]):
    swapped = [replace(pair, good=pair.bad, bad=pair.good) for pair in pairs]
    there, back = evaluate(pairs, metric), evaluate(swapped, metric)
    assert there.keys() == back.keys()
    for name, value in there.items():
        assert value + back[name] == pytest.approx(1)


@settings(max_examples=10, deadline=None)
@given(pair_lists, st.randoms())
def test_neither_order_nor_duplicates_nor_batches_change_accuracies(pairs, random):
    expected = evaluate(pairs)
    shuffled = pairs * 2
    random.shuffle(shuffled)
    assert evaluate(shuffled) == pytest.approx(expected)
    small = evaluate_minimal_pairs(MODEL, TOKENIZER, pairs, batch_tokens=7)
    assert {score.name: score.value for score in small.scores} == pytest.approx(expected)


def test_a_pair_counts_for_the_likelier_sentence():
    assert (score_pair(-1.0, -2.0), score_pair(-2.0, -1.0), score_pair(-1.0, -1.0)) == (
        1.0,
        0.0,
        0.5,
    )
    texts = ["the cats sleep", "the cats sleeps"]
    good, bad = score_pseudo_likelihood(MODEL, TOKENIZER, texts)
    found = evaluate([MinimalPair(*texts)])
    assert found["blimp/mean_over_pairs"] == float(good.total > bad.total)


def test_a_context_is_read_and_not_scored():
    """The bad sentence is worse behind the context, however the context scores."""
    pair = MinimalPair("sleeps", "sleep", "p", context="the x-ray cats")
    texts = [TOKENIZER.encode(text) for text in (pair.context, *pair.texts)]
    num_given = len(texts[0].ids)
    scored = score_pseudo_likelihood(MODEL, TOKENIZER, pair.texts)
    good, bad = (sum(result.scores[num_given:]) for result in scored)
    assert num_given > 3
    assert [result.num_tokens > num_given for result in scored] == [True, True]
    found = evaluate([pair])
    assert found["blimp/mean_over_pairs"] == float(good > bad)
    assert evaluate([replace(pair, good="sleep", bad="sleeps")]) != found
    assert fingerprint_pairs([pair]) != fingerprint_pairs([replace(pair, context="")])


def test_choices_are_listed_as_babylm_reads_them(tmp_path: Path):
    pairs = [MinimalPair("a", "b", "p") for _ in range(4)] + [MinimalPair("c", "d", "q")]
    found = list_predictions(pairs, [1.0, 0.0, 0.5, 0.5, 0.0])
    assert [each["pred"] for each in found["p"]["predictions"]] == ["a", "b", "a", "b"]
    assert found["q"] == {"predictions": [{"id": "q_0", "pred": "d"}]}
    apart = list_predictions(pairs[:4], [1.0, 0.5, 0.0, 0.5])["p"]["predictions"]
    assert [each["pred"] for each in apart] == ["a", "a", "b", "b"]
    pair = MinimalPair("sleeps", "sleep", "mind", "ewok", context="the cat")
    path = tmp_path / "predictions.json"
    result = evaluate_minimal_pairs(MODEL, TOKENIZER, [pair], predictions=path)
    chosen = " sleeps" if result.scores[0].value else " sleep"
    assert json.loads(path.read_text()) == {
        "mind": {"predictions": [{"id": "mind_0", "pred": chosen}]}
    }


def test_choices_of_all_pairs_make_the_score(tmp_path: Path):
    words = ["cats", "sleep", "sleeps", "the"]
    pairs = [MinimalPair(good, bad, p, "x") for good in words for bad in words for p in "pqq"]
    path = tmp_path / "choices.json"
    result = evaluate_minimal_pairs(MODEL, TOKENIZER, pairs, choices=path)
    found = json.loads(path.read_text())
    assert found["fingerprint"] == fingerprint_pairs(pairs)
    assert {name: len(credits) for name, credits in found["choices"].items()} == {
        "x/p": 16,
        "x/q": 32,
    }
    credits = [credit for one in found["choices"].values() for credit in one]
    assert set(credits) <= {0.0, 0.5, 1.0}
    scores = {score.name: score.value for score in result.scores}
    assert scores["blimp/mean_over_pairs"] == pytest.approx(sum(credits) / len(credits))


def test_both_means_are_told():
    pairs = [MinimalPair("a", "b", "p", "x", "syntax/semantics")] * 3
    pairs += [MinimalPair("a", "b", "q", "x", "syntax_semantics"), MinimalPair("a", "b", "r/s")]
    scores = {s.name: s for s in summarize_credits(pairs, [1, 1, 0.5, 0, 0])}
    assert {name: score.value for name, score in scores.items()} == pytest.approx(
        {
            "blimp/mean_over_paradigms": 2.5 / 9,
            "blimp/mean_over_pairs": 0.5,
            "blimp/field/syntax_semantics": 2.5 / 4,
            "blimp/x": 2.5 / 4,
            "blimp/x/p": 2.5 / 3,
            "blimp/x/q": 0,
            "blimp/unnamed/r_s": 0,
        }
    )
    paradigm = scores["blimp/x/p"]
    assert (paradigm.low, paradigm.high) == wilson_interval(2.5, 3)
    assert {(score.baseline) for score in scores.values()} == {0.5}
    assert paradigm.num_samples == 3
    # 3² / (1/3 + 1 + 1): as sure as four pairs.
    assert scores["blimp/mean_over_paradigms"].low == wilson_interval(2.5 / 9 * 4, 4)[0]


@given(pair_lists, st.integers(1, 4), st.integers(0, 3))
def test_fewer_chosen_pairs_are_among_more(pairs: list[MinimalPair], count: int, seed: int):
    few, more = (choose_pairs(pairs, n, seed) for n in (count, count + 1))
    assert set(few) <= set(more) <= set(pairs)
    assert [pair for pair in more if pair in few][: len(few)]
    for name in {(pair.phenomenon, pair.paradigm) for pair in pairs}:
        there, chosen = (
            sum((pair.phenomenon, pair.paradigm) == name for pair in group)
            for group in (pairs, few)
        )
        assert chosen == min(count, there)


def test_the_choice_is_of_the_seed_and_the_paradigm_alone():
    mine = [MinimalPair(f"good {n}", f"bad {n}", "mine") for n in range(50)]
    other = [MinimalPair(f"good {n}", f"bad {n}", "other") for n in range(50)]
    chosen = choose_pairs(mine, 5, seed=1)
    assert choose_pairs(other + mine, 5, seed=1)[5:] == chosen
    assert set(choose_pairs(mine[::-1], 5, seed=1)) == set(chosen)
    assert choose_pairs(mine, 5, seed=2) != chosen
    assert chosen == sorted(chosen, key=mine.index)


def test_what_was_asked_is_recorded():
    pairs = [MinimalPair(f"the cat {n}", "the dog", "p") for n in "abc"]
    result = evaluate_minimal_pairs(
        MODEL, TOKENIZER, pairs, "original", name="mine", pairs_each=2, seed=3
    )
    assert isinstance(result, SuiteResult)
    assert result.suite == "blimp"
    assert result.data == {
        "name": "mine",
        "fingerprint": fingerprint_pairs(choose_pairs(pairs, 2, 3)),
        "num_pairs": 2,
    }
    told = {key: result.settings[key] for key in ("metric", "ties", "pairs_each", "seed")}
    assert told == {"metric": "original", "ties": 0.5, "pairs_each": 2, "seed": 3}
    assert fingerprint_pairs(pairs) != fingerprint_pairs(pairs[::-1])


@pytest.mark.parametrize(
    ("pairs", "pairs_each", "message"),
    [
        ([], None, "there are no minimal pairs to evaluate on"),
        ([MinimalPair("a", "b")], 0, "pairs_each = 0 must be at least 1"),
        ([MinimalPair("a", "sleep " * 70)], None, '"sleep sleep .* has 70 tokens, more than'),
    ],
)
def test_what_cannot_be_evaluated(pairs: list[MinimalPair], pairs_each: int | None, message: str):
    with pytest.raises(InputError, match=message):
        evaluate_minimal_pairs(MODEL, TOKENIZER, pairs, pairs_each=pairs_each)


@pytest.mark.parametrize(
    ("num_equal", "line"), [(0, ""), (1, "1 of 3 pair is"), (2, "2 of 4 pairs are")]
)
def test_pairs_that_are_equal_as_tokens_are_counted(
    num_equal: int, line: str, capsys: pytest.CaptureFixture[str]
):
    unknown = MinimalPair("the \u4e00", "the \u4e8c", "p", "x", "syntax")
    pairs = [MinimalPair("the cat", "dogs see", "p", "x", "syntax")] * 2 + [unknown] * num_equal
    evaluate(pairs)
    said = capsys.readouterr().err
    assert line in said
    assert ("the same tokens" in said) == bool(num_equal)
