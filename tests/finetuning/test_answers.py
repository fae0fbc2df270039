"""Answers by class, as confusions and as a file."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.finetuning.answers import Answers, choose_example, write_predictions
from maskwright.finetuning.config import Task
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.tables import LabelledRow


def make(task: Task, true: list[Any], found: list[Any], *, pairs: bool = False) -> Answers:
    names = ("a", "b", "c") if task != "tokens" else ("O", "B-X", "I-X")
    texts = {"sentence1": 'He said, "no".\nOr so.'} | ({"sentence2": "x"} if pairs else {})
    rows = [LabelledRow("a.csv:1", texts) for _ in true]
    if task == "tokens":
        rows = [TaggedSentence("a:1", ("the", "cat"), tuple(tags)) for tags in true]
    probabilities = [0.75 if task == "classification" else None] * len(true)
    return Answers(Labels(task, names, (1, 1, 1)), rows, true, found, probabilities)


def test_classes_are_scored_as_scikit_learn_does() -> None:
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


def test_several_labels_and_entities_have_classes_too() -> None:
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


def test_the_example_is_quickly_read() -> None:
    answers = make("classification", ["a"] * 4, ["a"] * 4)
    texts = ["long " * 100, "x" * 150, "short", "x" * 300]
    rows = [LabelledRow("a.csv:1", {"sentence1": text}) for text in texts]
    assert choose_example(replace(answers, rows=rows)) == ["x" * 150]
    pairs = [LabelledRow("a.csv:1", {"sentence1": text, "sentence2": "y" * 99}) for text in texts]
    assert choose_example(replace(answers, rows=pairs)) == ["short", "y" * 99]
    tags = make("tokens", [["O", "O"], ["O", "B-X"]], [["O", "O"]] * 2)
    rows = [TaggedSentence("a:1", words, ()) for words in (("no", "entity"), ("an", "entity"))]
    assert choose_example(replace(tags, rows=rows)) == ["an entity"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            make("classification", ["a"], ["b"]),
            [["sentence1", "label", "prediction", "probability"], ["a", "b", "0.7500"]],
        ),
        (
            make("multilabel", [["a", "b"]], [[]], pairs=True),
            [["sentence1", "sentence2", "label", "prediction"], ["x", "a|b", ""]],
        ),
        (
            make("regression", [1.25], [0.5]),
            [["sentence1", "label", "prediction"], ["1.25", "0.5"]],
        ),
    ],
)
def test_predictions_are_a_table(
    answers: Answers, expected: list[list[str]], tmp_path: Path
) -> None:
    path = write_predictions(tmp_path, answers)
    with path.open(encoding="utf-8", newline="") as file:
        header, [text, *row] = csv.reader(file)
    assert [header, row] == expected
    assert text == 'He said, "no".\nOr so.'


def test_predictions_of_words_are_conll(tmp_path: Path) -> None:
    path = write_predictions(tmp_path, make("tokens", [["O", "B-X"]], [["O", "O"]]))
    assert path.name == "predictions.conll"
    assert path.read_text() == "the\tO\tO\ncat\tB-X\tO\n\n"
