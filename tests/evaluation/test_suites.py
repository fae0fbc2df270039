"""The registry of suites: one module and one line make a suite."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import maskwright
from maskwright.cli.evaluate import evaluate_parser
from maskwright.errors import InputError
from maskwright.evaluation.intervals import mean_interval
from maskwright.evaluation.suites import SUITES, Request, Suite, load_suite, mark_fast, parse_names
from maskwright.runs.config import SuiteName
from maskwright.runs.evaluation_file import Score, SuiteResult
from tests.command import Cli


def _sentences(request: Request) -> Sequence[Sequence[int]]:
    return request.need_text().sentences(request.find_size(SUITE))


def _check(request: Request) -> None:
    if not _sentences(request):
        raise request.too_short("it has no sentence")


def _score(request: Request) -> SuiteResult:
    lengths = np.array([len(ids) for ids in _sentences(request)], np.float64)
    low, high = mean_interval(lengths) or (None, None)
    score = Score("toy/mean_length", float(lengths.mean()), low, high, len(lengths))
    result = SuiteResult("toy", request.need_text().data, {}, (score,))
    return mark_fast(result, request.is_fast and len(lengths) == SUITE.fast)


# All that a suite is: this, and its line in the registry.
SUITE = Suite(
    name="toy",
    needs="text",
    full=40,
    fast=4,
    check=_check,
    score=_score,
    headlines=("toy/mean_length",),
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "toy", (f"{__name__}:SUITE", "mean length of a sentence"))


@pytest.mark.usefixtures("toy")
def test_a_toy_suite_is_scored_shown_and_helped(workplace: Path, cli: Cli):
    model, text = workplace / "runs" / "small" / "model", workplace / "animals.txt"
    full = maskwright.evaluate(model, suite="toy", data=text)
    fast = maskwright.evaluate(model, suite=["toy", "fill"], data=text, fast=True)
    assert [suite["suite"] for suite in fast["suites"]] == ["toy", "fill"]
    for suite, count in ((full["suites"][0], 40), (fast["suites"][0], 4)):
        [score] = suite["scores"]
        assert (score["name"], score["num_samples"]) == ("toy/mean_length", count)
        assert suite["settings"]["fast"] is (count == 4)
    assert "toy/mean_length" in cli("evaluate", model, "--suite", "toy", "--data", text)
    assert "  toy     mean length of a sentence\n" in evaluate_parser().format_help()


@pytest.mark.usefixtures("toy")
def test_a_suite_is_checked_before_any_other_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch):
    scored: list[str] = []
    watched = replace(load_suite("fill"), score=lambda request: scored.append("fill"))
    monkeypatch.setattr("maskwright.evaluation.suite_sentences.FILL", watched)
    monkeypatch.setattr(f"{__name__}._sentences", lambda _: [])
    model, text = workplace / "runs" / "small" / "model", workplace / "animals.txt"
    with pytest.raises(InputError, match="is too short: it has no sentence"):
        maskwright.evaluate(model, suite="fill,toy", data=text)
    assert scored == []


def test_suites_state_what_they_are():
    for name in SUITES:
        suite = load_suite(name)
        assert suite.name == name
        assert all(headline.startswith(f"{name}/") for headline in suite.headlines)
        assert suite.fast < (suite.full or np.inf)
    # evaluate.suites takes those that held-out text or minimal pairs are enough for.
    needs = {name: load_suite(name).needs for name in SUITES}
    assert get_args(SuiteName) == tuple(n for n in SUITES if needs[n] in ("text", "pairs"))


def test_names_are_read_once_each():
    assert parse_names(" fill,mlm, fill,") == ("fill", "mlm")
    assert parse_names(["pll", "pll"]) == ("pll",)
    assert parse_names("glue") == ("glue",)
    for names, message in {
        ("glue", "mlm"): "cannot be combined",
        ("fil",): "did you mean fill",
        ("",): "no suite given",
    }.items():
        with pytest.raises(InputError, match=message):
            parse_names(names)
