"""`maskwright score`: what it shows, and what it says of bad lines."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer
from maskwright.model_folder.folder import save_model
from tests.command import Cli
from tests.golden.pseudo_likelihood import METRICS, make_model, make_tokenizer

GOOD, LONG = "The cats sleep.", "sleep " * 70


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "model"
    tokenizer = make_tokenizer()
    save_model(folder, make_model("bert", tokenizer), tokenizer)
    return str(folder)


def score(cli: Cli, *arguments: str) -> tuple[int, list[str], list[str]]:
    """The exit code and the lines of the two outputs."""
    code, out, err = cli.run("score", *arguments)
    return code, out.splitlines(), err.splitlines()


@pytest.mark.parametrize("metric", METRICS)
def test_json_holds_the_scores_of_the_library(model: str, metric: Any, cli: Cli):
    texts = [GOOD, "The dogs see trees."]
    code, out, err = score(cli, model, *texts, "--json", "--tokens", "--metric", metric)
    assert code == 0
    sentences = [*map(json.loads, out)]
    expected = PseudoLikelihoodScorer(model)(texts, metric)
    assert [found["text"] for found in sentences] == texts
    for found, result in zip(sentences, expected, strict=True):
        assert found["score"] == pytest.approx(result.total, abs=1e-5)
        assert found["mean"] == pytest.approx(result.total / result.num_tokens, abs=1e-5)
        assert found["num_tokens"] == result.num_tokens == len(found["tokens"])
        scores = [token["score"] for token in found["tokens"]]
        assert scores == pytest.approx(result.scores, abs=1e-5)
    tokens = [token["token"] for token in sentences[0]["tokens"]]
    assert tokens == ["the", "cat", "##s", "sleep", "."]
    num_tokens = sum(result.num_tokens for result in expected)
    total = sum(result.total for result in expected)
    perplexity = f"{math.exp(-total / num_tokens):,.2f}"
    assert err == [f"pseudo-perplexity {perplexity} · 2 texts · {num_tokens} tokens · {metric}"]


def test_people_see_a_line_a_sentence(model: str, cli: Cli):
    code, out, _ = score(cli, model, "the [bold] cat")
    assert code == 0
    assert out[0].endswith("the [bold] cat  8 tokens")
    total, mean, *_ = out[0].split()
    assert float(mean) == pytest.approx(float(total) / 8, abs=1e-3)
    assert out[1].startswith("pseudo-perplexity ")
    assert out[1].endswith(" · 1 text · 8 tokens · within_word_l2r")
    code, out, _ = score(cli, model, "cats", "--tokens")
    assert [line.split()[-1] for line in out[1:3]] == ["cat", "##s"]


def test_bad_lines_are_named_and_the_others_scored(model: str, tmp_path: Path, cli: Cli):
    file = tmp_path / "s.txt"
    file.write_text(f"{GOOD}\n{LONG}\n\n{GOOD}\n")
    code, out, err = score(cli, model, "--file", str(file), "--json")
    assert code == 2
    rows = [json.loads(line) for line in out]
    assert {tuple(row) for row in rows} == {("text", "score", "mean", "num_tokens", "error")}
    assert [row["text"] for row in rows] == [GOOD, LONG, "", GOOD]
    assert [row["score"] is None for row in rows] == [False, True, True, False]
    assert rows[1]["error"] == err[0].removeprefix(f"InputError: {file}:2: ")
    assert rows[2] == {"text": "", "score": None, "mean": None, "num_tokens": 0, "error": None}
    assert len(err) == 2
    assert " · 2 texts · " in err[1]
    assert err[0].startswith(f'InputError: {file}:2: "sleep sleep')
    assert "has 72 tokens, more than the model's max_position_embeddings = 64" in err[0]


def test_no_text_could_be_scored(model: str, cli: Cli):
    code, out, err = score(cli, model, LONG)
    assert (code, out, len(err)) == (2, [""], 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], "there is no sentence to score"),
        (["a", "--metric", "salazar"], "invalid choice: 'salazar'"),
    ],
)
def test_what_cannot_be_scored_at_all(model: str, cli: Cli, arguments: list[str], message: str):
    code, out, err = score(cli, model, *arguments)
    assert (code, out, len(err)) == (2, [], 1)
    assert message in err[0]


def test_each_prints_a_row_of_positions(workplace: Path, cli: Cli):
    run = str(workplace / "runs" / "small")
    texts = ["The cat eats.", "A bird"]
    rows = [json.loads(line) for line in cli("score", run, *texts, "--each", "--json").splitlines()]
    assert [row["text"] for row in rows] == texts
    scores = [
        json.loads(line)
        for line in cli(
            "score", run, *texts, "--json", "--tokens", "--metric", "original"
        ).splitlines()
    ]
    for row, scored in zip(rows, scores, strict=True):
        assert [(one["token"]) for one in row["positions"]] == [
            one["token"] for one in scored["tokens"]
        ]
        assert [one["score"] for one in row["positions"]] == pytest.approx(
            [one["score"] for one in scored["tokens"]], abs=1e-4
        )
        assert {len(one["alternatives"]) for one in row["positions"]} == {5}
    shown = cli("score", run, *texts, "--each", "--alternatives", "1").splitlines()
    assert len(shown) == 2 + sum(len(row["positions"]) for row in rows)
    for flags in (["--alternatives", "3"], ["--each", "--tokens"], ["--masks", "0"]):
        assert cli.run("score", run, *texts, *flags)[0] == 2


def test_masks_change_the_number_of_passes_not_the_rows(workplace: Path, cli: Cli):
    run = str(workplace / "runs" / "small")
    several = cli("score", run, "The cat eats.", "A bird", "--masks", "3", "--json").splitlines()
    assert [json.loads(line)["num_tokens"] > 0 for line in several] == [True, True]
    assert cli.run("score", run, "A", "--masks", "2", "--metric", "within_word_l2r")[0] == 2
