from typing import Any

import numpy as np
import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.config import Task
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.tables import LabelledRow


def rows(*labels: Any) -> list[LabelledRow]:
    return [LabelledRow(f"t.tsv:{n}", {"label": label}) for n, label in enumerate(labels, start=1)]


def test_labels_are_found_in_one_order_whatever_comes_first() -> None:
    labels = Labels.find("classification", rows("pos", "neg", "pos"))
    assert (labels.names, labels.counts) == (("neg", "pos"), (1, 2))
    assert labels.encode(rows("pos", "neg")).tolist() == [1, 0]
    numbers = Labels.find("classification", rows("10", "9", 9.0, 10))
    assert numbers.names == ("9", "10")  # in the order of numbers, and 9.0 is 9


def test_several_labels_at_once_are_read_in_every_spelling() -> None:
    given = rows("a|b", "a,c", '["b"]', ["c", "a"], "", None)
    labels = Labels.find("multilabel", given)
    assert labels.names == ("a", "b", "c")
    expected = [[1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert labels.encode(given).tolist() == expected


def test_numbers_are_numbers() -> None:
    labels = Labels.find("regression", rows("0.5", 2))
    assert labels.names == ("score",)
    assert labels.encode(rows("0.5", 2)).tolist() == [0.5, 2.0]


def test_tags_begin_with_that_of_no_entity() -> None:
    labels = Labels.of_tags([["I-PER", "O"], ["I-LOC"]])
    assert labels.names == ("O", "I-LOC", "I-PER")
    assert labels.encode_tags(["I-PER", "O"], "x") == [2, 0]


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("classification", ["a", "a"], "all 2 examples have the label a: there is nothing to tell"),
        ("classification", ["a", " "], "t.tsv:2 has no label"),
        ("multilabel", ["", ""], "have the label none"),
        ("multilabel", ["[1"], r"t.tsv:1: label = \[1 is not a JSON list"),
        ("regression", ["1", "high"], "t.tsv:2: label = high is not a number"),
        ("regression", ["1", "3,5"], "t.tsv:2: label = 3,5 is not a number. Write a point"),
        ("regression", ["1", "nan"], "t.tsv:2: label = nan is not a number"),
        ("regression", ["1", None], "t.tsv:2: label = None is not a number"),
    ],
)
def test_what_cannot_be_learned_is_named(task: Task, labels: list[Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        Labels.find(task, rows(*labels))


def test_a_label_that_training_never_saw_is_named() -> None:
    labels = Labels.find("classification", rows("a", "b"))
    with pytest.raises(CorpusError, match=r"t.tsv:1 has the label c, which .* they have a, b\."):
        labels.encode(rows("c"))


def test_weights_make_all_labels_count_alike() -> None:
    labels = Labels.find("classification", rows("a", "a", "a", "b"))
    weighted = labels.weigh(4) * np.array(labels.counts)
    assert weighted == pytest.approx([2, 2])
    several = Labels.find("multilabel", rows("a", "a|b", "a", "a"))
    assert several.weigh(4).tolist() == [0.25, 3]  # one of all examples still counts
