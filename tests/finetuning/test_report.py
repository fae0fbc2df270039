"""Predictions by class and as a file, and the page of a run, in which nothing is markup."""

import csv
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.corpus.table_files import TableRow
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.report import (
    Predictions,
    name_predictions,
    render_page,
    write_predictions,
)
from maskwright.finetuning.task import Labels, find_label_task, load_label_task
from maskwright.model.config import ProblemType

pytestmark = pytest.mark.usefixtures("drawn_charts")


def make(task: str, true: list[Any], found: list[Any], *, pairs: bool = False) -> Predictions:
    names = ("a", "b", "c") if task != "tokens" else ("O", "B-X", "I-X")
    texts = {"sentence1": 'He said, "no".\nOr so.'} | ({"sentence2": "x"} if pairs else {})
    rows: list[Any] = [TableRow("a.csv:1", texts) for _ in true]
    if task == "tokens":
        rows = [TaggedSentence("a:1", ("the", "cat"), tuple(tags)) for tags in true]
    probabilities: list[Any] = [0.75 if task == "classification" else None] * len(true)
    if task == "multilabel":
        probabilities = [[0.75] * len(each) for each in found]
    labels = Labels(names, (1, 1, 1))
    return Predictions(load_label_task(task), labels, rows, true, found, probabilities)


def test_classes_are_scored_as_scikit_learn_does():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    true, found = (draw.choice(["a", "b", "c"], 50).tolist() for _ in "tf")
    answers = make("classification", true, found)
    expected = metrics.precision_recall_fscore_support(true, found, labels=["a", "b", "c"])
    scored = [list(scores.values()) for scores in answers.score_classes().values()]
    assert np.allclose(np.array(scored).T, np.array(expected))
    matrix = metrics.confusion_matrix(true, found, labels=["a", "b", "c"])
    counts = answers.count_confusions()
    assert [[counts[t].get(f, 0) for f in "abc"] for t in "abc"] == matrix.tolist()


def test_several_labels_and_entities_have_classes_too():
    several = make("multilabel", [["a", "b"], [], ["b"]], [["a"], ["c"], ["b"]])
    classes = several.score_classes()
    assert [classes[name]["f1"] for name in "abc"] == [1, pytest.approx(2 / 3), 0]
    assert several.count_confusions() == {}
    tags = make("tokens", [["O", "B-X"], ["B-X", "I-X"]], [["O", "B-X"], ["B-X", "O"]])
    assert tags.score_classes() == {
        "X": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "examples": 2}
    }
    assert tags.count_confusions()["I-X"] == {"O": 1}
    numbers = make("regression", [1.0, 2.0], [1.5, 2.0])
    assert (numbers.score_classes(), numbers.count_confusions()) == ({}, {})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            make("classification", ["a"], ["b"]),
            [["sentence1", "label", "prediction", "probability"], ["a", "b", "0.7500"]],
        ),
        (
            make("multilabel", [["a", "b"]], [[]], pairs=True),
            [
                ["sentence1", "sentence2", "label", "prediction", "probability"],
                ["x", "a|b", "", ""],
            ],
        ),
        (
            make("multilabel", [["a"]], [["a", "c"]]),
            [["sentence1", "label", "prediction", "probability"], ["a", "a|c", "0.7500|0.7500"]],
        ),
        (
            make("regression", [12345678.0], [0.1]),
            [["sentence1", "label", "prediction"], ["12345678", "0.1"]],
        ),
    ],
)
def test_predictions_are_a_table(answers: Predictions, expected: list[list[str]], tmp_path: Path):
    path = write_predictions(tmp_path, answers)
    with path.open(encoding="utf-8", newline="") as file:
        header, [text, *row] = csv.reader(file)
    assert [header, row] == expected
    assert text == 'He said, "no".\nOr so.'


def test_predictions_of_words_are_conll(tmp_path: Path):
    path = write_predictions(tmp_path, make("tokens", [["O", "B-X"]], [["O", "O"]]))
    assert path.name == "predictions.conll"
    assert path.read_text() == "the\tO\tO\ncat\tB-X\tO\n\n"


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_name_predictions_gives_each_label_its_probability(problem: ProblemType):
    """As the softmax or the sigmoid of its logits."""
    task = find_label_task("text", problem)
    logits = np.random.default_rng(0).normal(0, 2, (40, 3)).astype(np.float32)
    targets = np.zeros(40, int) if task.name == "classification" else np.zeros((40, 3), np.float32)
    rows = [TableRow("a.csv:1", {"sentence1": "a"})] * 40
    labels, examples = Labels(("a", "b", "c"), (1, 1, 1)), Examples([], targets, rows=rows)
    named = name_predictions(task, labels, examples, [*logits])
    for row, found, shown in zip(logits, named.found, named.probabilities, strict=True):
        if task.name == "classification":
            assert shown == pytest.approx(np.exp(row).max() / np.exp(row).sum(), abs=1e-6)
        else:
            expected = [1 / (1 + np.exp(-row["abc".index(name)])) for name in found]
            assert shown == pytest.approx(expected, abs=1e-6)
            assert len(found) == (row > 0).sum()


EVIL = "<script>alert(1)</script>"


def render(
    task: str, true: list[Any], found: list[Any], names: tuple[str, ...] = ("a", "b"), **more: Any
) -> str:
    rows: list[Any] = [TableRow("a", {"sentence1": f"{EVIL} {n}"}) for n in range(len(true))]
    if task == "tokens":
        rows = [TaggedSentence("a", (EVIL, "cat"), tuple(tags)) for tags in true]
    probabilities = [0.6 + n / 10 if task == "classification" else None for n in range(len(true))]
    labels = Labels(names, tuple(1 for _ in names))
    answers = Predictions(load_label_task(task), labels, rows, true, found, probabilities)
    scores = {"accuracy": {"mean": 0.5, "deviation": None}}
    results: Any = {
        "task": task,
        "computation": {"device": "cpu", "products": "float32"},
        "deciding_metric": "accuracy",
        "labels": dict.fromkeys(names, 1),
        "train_examples": 1000,
        "valid_examples": len(true),
        "baselines": {"majority": {"accuracy": 0.25}, "bag of words": {"accuracy": 0.3}},
        "scores": scores,
        "runs": [{"seconds": 90.0, "best_step": 10, "num_steps": 20}],
        "saved_seed": 0,
        "classes": answers.score_classes(),
        "confusion_matrix": answers.count_confusions(),
        **more,
    }
    record = {"seed": 0, "epoch": 1.0, "loss": 0.5, "valid_loss": 0.4, "accuracy": 0.5}
    control = {**record, "run": "control", "valid_loss": None}  # a NaN, as metrics.jsonl has it
    return render_page(EVIL, results, [record, control], answers, {"dropout": EVIL})


def test_a_page_holds_scores_classes_confusions_and_mistakes():
    page = render("classification", ["a", "b", "b"], ["a", "a", "a"])
    assert "0.2500</td><td>0.3000</td><td>0.5000" in page
    assert '<th scope="row">b</th><td>undefined</td><td>0.000</td><td>0.000</td><td>2</td>' in page
    assert "100 % of b" in page
    assert page.index("&lt;script&gt;alert(1)&lt;/script&gt; 2") < page.index("&lt;/script&gt; 1")
    assert "These examples chose the weights" in page
    assert page.count("<svg") == 1


def test_a_page_names_the_file_of_predictions():
    assert "predictions.csv" in render("classification", ["a", "b"], ["a", "a"])
    assert "predictions.conll" in render("tokens", [["O", "B-X"]], [["B-X", "O"]], ("O", "B-X"))


@pytest.mark.parametrize(
    ("task", "true", "found", "names"),
    [
        ("classification", ["a"], ["b"], ("a", "b", EVIL)),
        ("classification", ["0"], ["24"], (*map(str, range(24)), "24", EVIL)),
        ("multilabel", [[EVIL], ["a"]], [[], ["a"]], ("a", EVIL)),
        ("regression", [1.0], [2.0], ("score",)),
        ("tokens", [["O", f"B-{EVIL}"]], [[f"B-{EVIL}", "O"]], ("O", f"B-{EVIL}")),
    ],
)
def test_nothing_in_a_page_is_markup(
    task: str, true: list[Any], found: list[Any], names: tuple[str, ...]
):
    page = render(task, true, found, names)
    assert EVIL not in page
    assert "src=" not in page
    assert ("Confusion matrix" in page) == (task in ("classification", "tokens") and len(names) < 9)
    assert ("Most frequent confusions" in page) == (len(names) > 20)
    assert "<h2>Errors</h2>" in page


def test_a_test_is_shown_instead_of_the_validation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    scores = {"accuracy": {"mean": 0.875, "deviation": 0.01}}
    baselines = {"majority": {"accuracy": 0.1}, "bag of words": {"accuracy": 0.2}}
    judged = {"baselines": baselines, "scores": scores, "examples": 7}
    page = render("classification", ["a"], ["a"], test={**judged, "random_encoder": scores})
    assert "Scores on the test examples" in page
    assert "0.1000</td><td>0.2000</td><td>0.8750 ± 0.0100</td><td>0.8750 ± 0.0100" in page
    assert "<h2>Errors</h2>" not in page
    assert "<svg" not in page
    assert "maskwright[plots]" in page
