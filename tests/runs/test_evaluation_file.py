"""The results of a run: which replace each other, and which of several a reader gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.report.facts import describe_extent
from maskwright.runs.evaluation_file import (
    FORMAT,
    DataFacts,
    SuiteResult,
    choose_result,
    find_unusual,
    merge_earlier,
)


def make_result(**settings: Any) -> SuiteResult:
    data: DataFacts = {"name": "pairs", "fingerprint": "f"}
    return SuiteResult("blimp", data, {"fast": False, **settings}, ())


def merge(path: Path, *results: SuiteResult) -> list[dict[str, Any]]:
    """Return the settings in the file after a run of each result, one after another."""
    for result in results:
        suite = {
            "suite": result.suite,
            "data": result.data,
            "settings": result.settings,
            "scores": [],
        }
        new: Any = {"format": FORMAT, "model": {"sha256": "m"}, "suites": [suite]}
        path.write_text(json.dumps(merge_earlier(path, new)))
    return [suite["settings"] for suite in json.loads(path.read_text())["suites"]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fast", True),
        ("metric", "original"),
        ("precision", "bf16"),
        ("pooling", "cls"),
        ("reranker", "runs/ranker"),
    ],
)
def test_another_measurement_stays_beside_the_usual_one(
    name: str, value: object, tmp_path: Path
) -> None:
    usual, other = make_result(), make_result(**{name: value})
    found = merge(tmp_path / "evaluation.json", usual, other, usual, other)
    assert found == [usual.settings, other.settings]
    assert choose_result([usual, other], "blimp") == usual
    assert choose_result([other], "blimp") == other
    assert find_unusual(usual) == {}
    assert find_unusual(other) == {name: value}
    assert describe_extent(usual) == ""
    assert ("--fast" if name == "fast" else f"{name} = {value}") in describe_extent(other)


def test_a_full_result_is_preferred_even_if_it_is_less_usual() -> None:
    fast, bf16 = make_result(fast=True), make_result(precision="bf16", metric="original")
    assert choose_result([bf16, fast], "blimp") == bf16


def test_a_setting_of_its_usual_value_is_the_same_measurement(tmp_path: Path) -> None:
    older, newer = make_result(), make_result(precision="fp32")
    assert merge(tmp_path / "evaluation.json", older, newer) == [newer.settings]


def test_rows_of_another_length_are_another_measurement_and_not_unusual(tmp_path: Path) -> None:
    usual, other = make_result(max_seq_length=128), make_result(max_seq_length=512)
    assert len(merge(tmp_path / "evaluation.json", usual, other, usual)) == 2
    assert describe_extent(other) == ""
