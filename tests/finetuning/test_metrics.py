"""Metrics against scikit-learn, seqeval and sums by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.cli.finetune import show_scores
from maskwright.finetuning.config import TASKS
from maskwright.finetuning.conll import find_entities
from maskwright.finetuning.metrics import (
    Metric,
    compute_metric,
    describe_defeats,
    rank,
    score_spans,
)
from maskwright.finetuning.task import LabelTask, load_task

TRUE = np.array([0, 0, 0, 1, 1, 1, 1, 1])
FOUND = np.array([0, 1, 0, 1, 1, 1, 0, 1])  # 2 of 3 and 4 of 5 are right


def test_metrics_of_classes_by_hand():
    assert compute_metric("accuracy", TRUE, FOUND) == 6 / 8
    several = np.array([[1, 0], [1, 1]], np.float32), np.array([[1, 1], [1, 1]], np.float32)
    assert compute_metric("accuracy", *several) == 1 / 2
    of_1, of_0 = 2 * 4 / (5 + 5), 2 * 2 / (3 + 3)
    assert compute_metric("f1", TRUE, FOUND) == pytest.approx(of_1)
    assert compute_metric("macro_f1", TRUE, FOUND) == pytest.approx((of_0 + of_1) / 2)
    phi = (4 * 2 - 1 * 1) / (5 * 5 * 3 * 3) ** 0.5
    assert compute_metric("matthews", TRUE, FOUND) == pytest.approx(phi)


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1"])
def test_the_only_label_of_several_is_what_is_scored(metric: Metric):
    true = np.array([[1], [1], [0], [0]])
    assert compute_metric(metric, true, np.zeros_like(true)) == 0
    assert compute_metric(metric, true, np.array([[1], [0], [0], [0]])) == pytest.approx(2 / 3)


def test_metrics_of_numbers():
    true, found = np.array([1.0, 2.0, 3.0, 10.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert compute_metric("spearman", true, found) == pytest.approx(1.0)
    assert compute_metric("pearson", true, found) == pytest.approx(np.corrcoef(true, found)[0, 1])
    assert compute_metric("mean_squared_error", true, found) == 9.0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_answers_that_are_all_the_same_correlate_with_nothing(name: Metric):
    assert compute_metric(name, np.array([1.0, 2.0]), np.array([3.0, 3.0])) == 0.0


OWN_SCORES = ("tokens", "spans", "ranking")  # tasks that do not call compute_metric


@pytest.mark.parametrize("name", [name for name in TASKS if name not in OWN_SCORES])
def test_every_task_has_metrics_that_exist(name: str):
    task = load_task(name)
    for metric in task.metrics if isinstance(task, LabelTask) else ():
        assert np.isfinite(compute_metric(metric, TRUE, FOUND))


def test_of_equal_scores_the_one_with_the_smaller_loss_is_better():
    flat = {"matthews": 0.0, "valid_loss": 0.7}
    assert rank("matthews", {"matthews": 0.0, "valid_loss": 0.6}) > rank("matthews", flat)
    assert rank("matthews", {"matthews": -0.1, "valid_loss": 0.1}) < rank("matthews", flat)


TAGS = st.sampled_from(["O", *(f"{p}-{k}" for p in "BIES" for k in ("PER", "LOC"))])
SENTENCES = st.lists(st.integers(0, 6), min_size=1, max_size=5).flatmap(
    lambda lengths: st.tuples(
        *2 * [st.tuples(*(st.lists(TAGS, min_size=n, max_size=n) for n in lengths))]
    )
)


@given(SENTENCES)
def test_entities_are_scored_as_seqeval_does(
    sentences: tuple[tuple[list[str], ...], tuple[list[str], ...]],
):
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    true, found = ([tags for tags in side if tags] for side in sentences)
    for tags in (*true, *found):
        assert [tuple(entity) for entity in find_entities(tags)] == [
            (kind, start, last + 1) for kind, start, last in sequence_labeling.get_entities(tags)
        ]
    scores, each = score_spans(true, found)
    if true:
        arguments = {"average": "micro", "zero_division": 0}
        theirs = sequence_labeling.precision_recall_fscore_support(true, found, **arguments)
        assert (scores.precision, scores.recall, scores.f1) == pytest.approx(theirs[:3])
    assert sum(kind.num_right for kind in each.values()) == scores.num_right


def test_kinds_without_a_prefix_are_told_apart():
    scores, _ = score_spans([["O", "PER", "O"]], [["O", "LOC", "O"]])
    assert (scores.num_true, scores.num_found, scores.num_right) == (1, 1, 0)


def test_the_table_fits_a_terminal(capsys: pytest.CaptureFixture[str]):
    names = ("span_f1", "span_precision", "span_recall", "mean_squared_error", "span_f1/LOC")
    scores = dict.fromkeys(names, 0.25)
    means = {name: {"mean": 0.0235, "deviation": 0.0333} for name in names}
    baselines = {"majority": scores, "bag of words": scores}
    results: Any = {"baselines": baselines, "random_encoder": means, "scores": means}
    show_scores(results)
    _, titles, *rows = capsys.readouterr().out.splitlines()
    assert titles.split("  ")[-1].strip() == "this model"
    assert [row.split()[0] for row in rows] == list(names[:4])
    assert all(row.count("0.0235 ± 0.0333") == 2 and len(row) <= 80 for row in rows)


@pytest.mark.parametrize(
    ("metric", "majority", "bag", "expected"),
    [
        ("accuracy", 0.5, 0.7, []),
        ("accuracy", 0.5, 0.9, ["A bag of words is better: accuracy 0.9000, this model 0.8000."]),
        ("accuracy", 0.8, 0.8, ["The model does not beat a constant"]),
        ("mean_squared_error", 0.9, 0.9, []),
        ("mean_squared_error", 0.9, 0.1, ["A bag of words is better: mean_squared_error 0.1"]),
    ],
)
def test_a_model_that_loses_hears_so(metric: str, majority: float, bag: float, expected: list[str]):
    baselines = {"majority": {metric: majority}, "bag of words": {metric: bag}}
    judged: Any = {"scores": {metric: {"mean": 0.8}}, "baselines": baselines}
    chosen_by: Any = {"scores": {metric: {"mean": 0.4}}, "baselines": baselines}
    results: Any = {"deciding_metric": metric, "valid_examples": 1, "runs": [], **judged}
    assert_lines(describe_defeats(results), expected)
    tested: Any = {**results, **chosen_by, "test": judged}
    assert_lines(describe_defeats(tested), expected)


@pytest.mark.parametrize(
    ("run", "flag"),
    [
        ({"best_step": 60, "num_steps": 100, "max_steps": 200}, "--patience 0"),
        ({"best_step": 195, "num_steps": 200, "max_steps": 200}, "--epochs"),
        ({"best_step": 60, "num_steps": 200, "max_steps": 200}, "--learning_rate"),
    ],
)
def test_advice_follows_from_how_the_run_ended(run: dict[str, int], flag: str):
    results: Any = {
        "deciding_metric": "f1",
        "valid_examples": 1,
        "scores": {"f1": {"mean": 0.4}},
        "baselines": {"majority": {"f1": 0.5}, "bag of words": {"f1": 0.6}},
        "runs": [run],
    }
    flags = ["--patience 0", "--epochs", "--learning_rate"]
    lines = describe_defeats(results)
    assert [[each for each in flags if each in line] for line in lines] == [[flag], [flag]]


def assert_lines(lines: list[str], beginnings: list[str]) -> None:
    assert len(lines) == len(beginnings)
    assert all(line.startswith(each) for line, each in zip(lines, beginnings, strict=True))
