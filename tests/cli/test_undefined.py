"""Scores that are undefined, on every way out of a run: terminal, files, pages, cards, sweeps."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from maskwright.finetuning.metrics import show_mean
from maskwright.formatting import show_score
from maskwright.sweeping.run import read_score
from tests.cli.test_finetune import FAST, write_table
from tests.command import Cli

# A task, the column of its labels, and labels that are hidden or all the same, by which its score
# is undefined.
HIDDEN = {
    "regression": ("count", "-1", "spearman"),
    "multilabel": ("right", "", "micro_f1"),
    "classification": ("right", "no", "matthews"),
}


def hide_labels(table: Path, column: str, label: str) -> Path:
    header, *lines = table.read_text().splitlines()
    place = header.split("\t").index(column)
    rows = [line.split("\t") for line in lines]
    hidden = [[*row[:place], label, *row[place + 1 :]] for row in rows]
    path = table.with_name(f"hidden-{column}.tsv")
    path.write_text("\n".join([header, *map("\t".join, hidden)]) + "\n", encoding="utf-8")
    return path


def list_numbers(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [one for part in inner for one in list_numbers(part)]
    return [value]


@pytest.mark.parametrize("task", HIDDEN)
def test_a_score_of_hidden_labels_is_undefined_on_every_way(
    task: str, workplace: Path, tmp_path: Path, cli: Cli
):
    column, label, metric = HIDDEN[task]
    train = write_table(tmp_path / "train.tsv")
    test = hide_labels(write_table(tmp_path / "test.tsv", 20), column, label)
    out, columns = tmp_path / "run", ("--columns", "sentence1=text", f"label={column}")
    printed = cli(
        *("finetune", workplace / "runs" / "small", "--task", task, "--train", train, *FAST),
        *("--test", test, *columns, "--metric", metric, "--out", out),
    )
    said = "the labels of the test examples are all equal, or none"
    assert printed.count(said) == 2  # before training, and at the end
    table = printed.partition(f"examples of {test}")[2]
    row = next(line for line in table.splitlines() if line.startswith(metric))
    values = row.split()[1:]
    assert len(values) == 3
    assert {*values} <= {
        "undefined",
        *(["0.0000"] if task == "multilabel" else []),
    }  # as scikit-learn
    assert not re.search("does not beat|Better than|--epochs", printed)
    results = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    assert show_mean(results["test"]["scores"][metric]) == values[-1]
    assert metric in results["test"]["void"]
    page = (out / "report.html").read_text().partition("<h2>Configuration")[0]
    for text in (page, (out / "model" / "README.md").read_text()):
        assert values[-1] in text
        assert not re.search(r"\bNone\b|\bnan\b", text)
    shown = cli("evaluate", out, "--suite", "labels", "--data", test)
    assert re.search(rf"labels/{metric}\s+{values[-1]}", shown)
    scores = json.loads(cli("evaluate", out, "--suite", "labels", "--data", test, "--json"))
    found = {score["name"]: score["value"] for score in scores["suites"][0]["scores"]}
    assert show_score(found[f"labels/{metric}"]) == values[-1]
    assert all(value == value for value in list_numbers(scores))


def test_an_undefined_score_is_none_to_a_sweep(tmp_path: Path):
    summary = {"mean": None, "deviation": None}
    results = {"deciding_metric": "spearman", "scores": {"spearman": summary}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert read_score("finetune", tmp_path) is None
