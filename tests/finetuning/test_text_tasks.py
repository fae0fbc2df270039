import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.request import TaskFiles
from maskwright.finetuning.table_files import TableRow
from maskwright.finetuning.task import load_label_task
from maskwright.finetuning.text_tasks import Classification, MultiLabel, Regression
from maskwright.finetuning.token_task import Tokens

CLASSES, SEVERAL, NUMBER = Classification(), MultiLabel(), Regression()


def rows(*labels: Any) -> list[TableRow]:
    return [TableRow(f"t.tsv:{n}", {"label": label}) for n, label in enumerate(labels, start=1)]


def test_labels_are_found_in_one_order_whatever_comes_first() -> None:
    labels = CLASSES.find_labels(rows("pos", "neg", "pos"))
    assert (labels.names, labels.counts) == (("neg", "pos"), (1, 2))
    assert CLASSES.encode_labels(rows("pos", "neg"), labels).tolist() == [1, 0]
    numbers = CLASSES.find_labels(rows("10", "9", 9.0, 10))
    assert numbers.names == ("9", "10")  # in the order of numbers, and 9.0 is 9


def test_several_labels_at_once_are_read_in_every_spelling() -> None:
    given = rows("a, b", "a,c", '["b"]', ["c", "a", None], "", math.nan)
    labels = SEVERAL.find_labels(given)
    assert labels.names == ("a", "b", "c")
    expected = [[1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert SEVERAL.encode_labels(given, labels).tolist() == expected


def test_a_label_that_is_no_value_names_the_remedy_for_its_kind() -> None:
    with pytest.raises(CorpusError, match=r"t\.tsv:1: label = .*; for a list of them, give --task"):
        CLASSES.find_labels(rows(["a"]))
    with pytest.raises(CorpusError, match=r"t\.tsv:1: label = .*; move it out of the object"):
        CLASSES.find_labels(rows({"name": "a"}))


def test_commas_are_parts_of_names_if_training_labels_have_bars() -> None:
    labels = SEVERAL.find_labels(rows("Food, drinks|Travel", "Travel"))
    assert labels.names == ("Food, drinks", "Travel")
    scored = rows("Food, drinks", "Travel|Food, drinks")  # also where no label has a bar
    assert SEVERAL.encode_labels(scored[:1], labels).tolist() == [[1, 0]]
    assert SEVERAL.encode_labels(scored, labels).tolist() == [[1, 0], [1, 1]]


def test_numbers_are_numbers() -> None:
    labels = NUMBER.find_labels(rows("0.5", 2))
    assert labels.names == ("score",)
    assert NUMBER.encode_labels(rows("0.5", 2), labels).tolist() == [0.5, 2.0]


def test_tags_begin_with_that_of_no_entity() -> None:
    sentences = [TaggedSentence("", (), tags) for tags in (("I-PER", "O"), ("I-LOC",))]
    labels = Tokens().find_labels(sentences)
    assert labels.names == ("O", "I-LOC", "I-PER")
    assert labels.encode(["I-PER", "O"], "x") == [2, 0]


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        (
            "classification",
            ["a", "a"],
            "all 2 examples have the label a, .* at least 2",
        ),
        ("classification", ["a", " "], "t.tsv:2 has no label"),
        ("classification", ["a", ["a", "b"]], r"t.tsv:2: label = \['a', 'b'\] .* multilabel"),
        ("classification", ["a", {"b": 1}], r"t.tsv:2: label = \{'b': 1\} must be a string"),
        ("multilabel", ["a", {"b": 1}], r"t.tsv:2: label = \{'b': 1\} must be a string"),
        ("multilabel", ["a", ["a", ["b"]]], r"t.tsv:2: label = \['b'\] must be a string"),
        ("multilabel", ["", ""], "have the label none"),
        ("multilabel", ["[1"], r"t.tsv:1: label = \[1 is not a JSON list"),
        ("regression", ["1", "high"], "t.tsv:2: label = high is not a number"),
        ("regression", ["1", "3,5"], "t.tsv:2: label = 3,5 is not a number. Write a decimal point"),
        (
            "regression",
            ["1", "-2e18"],
            r"t.tsv:2: label = -2e18 must be within ±1e\+18",
        ),
        ("regression", ["1", "nan"], "t.tsv:2: label = nan is not a number"),
        ("regression", ["2", 2.0], "all 2 examples have label = 2,"),
        ("multilabel", ["a|b|a"], "t.tsv:1: label = a is named twice"),
        ("multilabel", [[1, 0, 1], [1, 0]], "t.tsv:1: label = 1 is named twice"),
        ("multilabel", [[0.9, 0.1], [0.2, 0.8]], "t.tsv:1: label = 0.9 in a list"),
        ("regression", ["1", None], "t.tsv:2: label = None is not a number"),
    ],
)
def test_what_cannot_be_learned_is_named(task: str, labels: list[Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        load_label_task(task).find_labels(rows(*labels))


def test_a_label_that_training_never_saw_is_named() -> None:
    labels = CLASSES.find_labels(rows("a", "b"))
    with pytest.raises(CorpusError, match=r"t.tsv:1 has the label c, which .* they have a, b\."):
        CLASSES.encode_labels(rows("c"), labels)


def test_weights_make_all_labels_count_alike() -> None:
    labels = CLASSES.find_labels(rows("a", "a", "a", "b"))
    weighted = CLASSES.weigh(labels, 4) * np.array(labels.counts)
    assert weighted == pytest.approx([2, 2])
    several = SEVERAL.find_labels(rows("a", "a,b", "a", "a"))
    assert SEVERAL.weigh(several, 4).tolist() == [0.25, 3]  # one of all examples still counts


def test_numbers_are_scaled_however_large_they_are() -> None:
    targets = np.array([1e18, -1e18] * 1000, np.float32)
    assert NUMBER.normalize(targets) == pytest.approx((0.0, 1e18))
    assert NUMBER.normalize(np.full(7, 0.1, np.float32)) == (pytest.approx(0.1), 1.0)


@pytest.mark.parametrize(
    "labels",
    [
        [[1.0, 0.0, 1.0], [0, 0, 0], [0, 1, 0]],
        [[True, False, True], None, [False, True, False]],
        ["1 0 1", "0 0 0", "0 1 0"],
        ["[1, 0, 1]", "", "[0, 1, 0]"],
    ],
)
def test_vectors_of_0_and_1_are_labels_by_position(labels: list[Any], tmp_path: Path) -> None:
    path, task = tmp_path / "a.jsonl", MultiLabel()
    path.write_text("\n".join(json.dumps({"text": "x", "label": label}) for label in labels))
    columns = {"sentence1": "text", "label": "label"}
    found = task.read(path, TaskFiles(task="multilabel", train=path, columns=columns), None)
    names = task.find_labels(found)
    assert (names.names, names.counts) == (("0", "1", "2"), (1, 1, 1))
    assert task.encode_labels(found, names).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert task.notes == ["a.jsonl: the labels are vectors of 0 and 1, named from 0"]


def test_labels_that_print_alike_are_one() -> None:
    spelled = ["caf\u00e9", "cafe\u0301", "\u200bcaf\u00e9", "caf\u00e9\ufeff", "ca\u00adf\u00e9"]
    labels = CLASSES.find_labels(rows(*spelled, "a b", "a\u00a0b"))
    assert (labels.names, labels.counts) == (("a b", "caf\u00e9"), (2, 5))
