"""`maskwright search` through the command line: lines, tables, several queries, mistakes."""

import io
import json
import sys
from pathlib import Path

import pytest

from tests.command import Cli

LINES = ["The small horse eats grass.", "", "A bird\x1b[2J", "[bold]the cat"]


@pytest.fixture
def run(workplace: Path) -> str:
    return str(workplace / "runs" / "small")


@pytest.fixture
def texts(tmp_path: Path) -> str:
    (tmp_path / "texts.txt").write_text("\n".join([*LINES, ""]), encoding="utf-8")
    return str(tmp_path / "texts.txt")


def test_the_nearest_texts_have_their_cosine_and_line(run: str, texts: str, cli: Cli):
    first, second = cli("search", run, LINES[0], "--file", texts, "--top", "2").splitlines()
    assert first.split(maxsplit=2) == ["1.000", "1", LINES[0]]
    assert second.split()[1] in ("3", "4")
    shown = cli("search", run, "a bird", "the cat", "--file", texts)
    assert "[bold]the cat" in shown
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2 * 4  # the query, and three lines that are not blank


def test_queries_of_standard_input_and_json(
    run: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    table = tmp_path / "texts.csv"
    table.write_text('text,label\n"The old\nhorse",1\nthe cat,2\n', encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\n\nThe old horse\n"))
    found = [
        json.loads(line)
        for line in cli("search", run, "--file", table, "--top", "1", "--json").splitlines()
    ]
    assert [one["query"] for one in found] == ["the cat", "The old horse"]
    assert [one["matches"][0]["number"] for one in found] == [2, 1]
    assert found[0]["matches"] == [
        {"number": 2, "text": "the cat", "score": pytest.approx(1.0, abs=1e-5)}
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["a cat"], "--file"),
        (["a cat", "--file", "missing.txt"], "missing.txt"),
        (["a cat", "--file", "TEXTS", "--top", "0"], "--top = 0"),
        (["a cat", "--file", "TEXTS", "--top", "few"], "--top"),
        (["--file", "-"], "--file cannot both be standard input"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], named: str, run: str, texts: str, cli: Cli):
    given = [texts if argument == "TEXTS" else argument for argument in arguments]
    assert named in cli.refuse("search", run, *given)
