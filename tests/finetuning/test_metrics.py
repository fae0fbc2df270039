"""Metrics against scikit-learn, seqeval and sums by hand."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from maskwright.cli.finetune import show_scores
from maskwright.finetuning.config import TASKS
from maskwright.finetuning.conll import find_entities
from maskwright.finetuning.metrics import (
    _METRICS,
    BY_ERROR,
    LOWER_IS_BETTER,
    Metric,
    SpanScores,
    beats,
    compute_metric,
    describe_defeats,
    describe_scores,
    is_perfect,
    rank,
    score_spans,
    show_mean,
    summarize,
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


CASES = {
    "usual": (TRUE, FOUND),
    "one answer": (TRUE, 0 * FOUND),
    "one label": (0 * TRUE, FOUND),
    "one label and answer": (0 * TRUE, 0 * FOUND),
    "no examples": (TRUE[:0], FOUND[:0]),
    "one example": (TRUE[:1], FOUND[:1]),
}


def judge(name: str, true: Any, found: Any) -> float:
    """The value of scikit-learn or SciPy, which is NaN if a score is undefined."""
    if len(true) < 2 and name in ("pearson", "spearman"):
        return math.nan  # SciPy refuses a single pair
    if name in ("pearson", "spearman"):
        return float(getattr(scipy.stats, f"{name}r")(true, found).statistic)
    averages = {"f1": "binary", "macro_f1": "macro", "micro_f1": "micro"}
    if name in averages:
        average = averages[name] if true.shape[1:] != (1,) else "binary"
        undefined: Any = np.nan
        return float(sklearn.f1_score(true, found, average=average, zero_division=undefined))
    function = {"matthews": "matthews_corrcoef"}.get(name, f"{name}_score")
    return float(getattr(sklearn, function, sklearn.mean_squared_error)(true, found))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", _METRICS)
@pytest.mark.filterwarnings("ignore:.*(constant|single label)")
def test_compute_metric_is_undefined_where_the_libraries_say_so(name: str, case: str):
    true, found = CASES[case]
    expected = judge(name, true, found) if len(true) else math.nan
    if name == "matthews" and case.startswith("one") and case != "one answer":
        expected = math.nan  # scikit-learn's 0 would be that of a model without skill
    assert compute_metric(name, true, found) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", ["micro_f1", "macro_f1"])
@pytest.mark.parametrize("columns", [1, 3])
def test_a_label_that_neither_occurs_nor_is_predicted_has_no_f1(name: str, columns: int):
    nothing, some = np.zeros((4, columns)), np.eye(4)[:, :columns]
    for true, found in ((nothing, nothing), (nothing, some), (some, nothing), (some, some)):
        assert compute_metric(name, true, found) == pytest.approx(
            judge(name, true, found), nan_ok=True
        )
    rare = np.array([[1, 0], [1, 0]])
    assert compute_metric("macro_f1", rare, rare) == 1.0


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_span_scores_are_undefined_without_a_denominator(right: int, missed: int, wrong: int):
    scores = SpanScores(right + missed, right + wrong, right)
    true = np.repeat([1, 1, 0], [right, missed, wrong])
    found = np.repeat([1, 0, 1], [right, missed, wrong])
    shares = [math.nan] * 3
    if len(true):
        arguments: Any = {"average": "binary", "zero_division": np.nan}
        shares = sklearn.precision_recall_fscore_support(true, found, **arguments)[:3]
    found_shares = (scores.precision, scores.recall, scores.f1)
    assert found_shares == pytest.approx(tuple(shares), nan_ok=True)


@pytest.mark.parametrize("metric", _METRICS)
def test_an_undefined_score_neither_beats_nor_hides_another(metric: str):
    is_error = metric in LOWER_IS_BETTER
    for nothing in (math.nan, None):
        assert beats(metric, 0.1, nothing) != is_error
        assert not beats(metric, nothing, nothing)
        assert not is_perfect(metric, {metric: math.nan})
    undefined, small = {metric: math.nan, "valid_loss": 0.7}, {metric: math.nan, "valid_loss": 0.6}
    assert rank(metric, small) > rank(metric, undefined)


def test_summarize_has_no_mean_of_undefined_scores():
    found = summarize([{"f1": 0.5, "f1/PER": 0.5}, {"f1": 0.7, "pearson": math.nan}])
    assert found["f1"]["mean"] == pytest.approx(0.6)
    assert [found[name]["mean"] for name in ("f1/PER", "pearson")] == [None, None]
    assert [show_mean(found[name]) for name in ("f1/PER", "pearson")] == ["undefined"] * 2
    assert describe_scores({"pearson": math.nan, "f1": 0.5}) == "pearson undefined  f1 0.5000"


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
        ours = np.nan_to_num([scores.precision, scores.recall, scores.f1])
        assert ours == pytest.approx(theirs[:3])  # 0 where we say undefined
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
        (
            "accuracy",
            0.5,
            0.9,
            ["Better than this model: a bag of words (accuracy 0.9000, this model 0.8000)."],
        ),
        ("accuracy", 0.8, 0.8, ["The model does not beat a constant"]),
        ("mean_squared_error", 0.9, 0.9, []),
        (
            "mean_squared_error",
            0.9,
            0.1,
            ["Better than this model: a bag of words (mean_squared_error 0.1"],
        ),
    ],
)
def test_a_model_that_loses_hears_so(metric: str, majority: float, bag: float, expected: list[str]):
    baselines = {"majority": {metric: majority}, "bag of words": {metric: bag}}
    judged: Any = {"scores": {metric: {"mean": 0.8}}, "baselines": baselines}
    chosen_by: Any = {"scores": {metric: {"mean": 0.4}}, "baselines": baselines}
    results: Any = {
        "deciding_metric": metric,
        "valid_examples": 1,
        "runs": [],
        "task": "classification",
        **judged,
    }
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
        "task": "classification",
        "deciding_metric": "f1",
        "valid_examples": 1,
        "scores": {"f1": {"mean": 0.4}},
        "baselines": {"majority": {"f1": 0.5}, "bag of words": {"f1": 0.6}},
        "runs": [run],
    }
    flags = ["--patience 0", "--epochs", "--learning_rate"]
    lines = describe_defeats(results)
    assert [[each for each in flags if each in line] for line in lines] == [[flag], [flag]]


@pytest.mark.parametrize("task", [name for name in TASKS if name != "embedding"])
def test_advice_speaks_of_what_the_baselines_of_the_task_predict(task: str):
    found = load_task(task)
    assert isinstance(found, LabelTask)
    results: Any = {
        "task": task,
        "deciding_metric": "f1",
        "valid_examples": 1,
        "scores": {"f1": {"mean": None}},
        "baselines": {"majority": {"f1": None}, "bag of words": {"f1": 0.6}},
        "runs": [],
    }
    constant, rival = describe_defeats(results)
    assert ("label" in constant) == (found.has_classes and found.level == "text")
    assert ("number" in constant) == (found.problem == "regression")
    assert ("bag of words" in rival) == (found.level == "text")
    assert "undefined" in rival
    results["void"] = ["f1"]
    [line] = describe_defeats(results)
    assert line.startswith("f1 says nothing")
    assert "--" not in line


def assert_lines(lines: list[str], beginnings: list[str]) -> None:
    assert len(lines) == len(beginnings)
    assert all(line.startswith(each) for line, each in zip(lines, beginnings, strict=True))


def test_tasks_by_error_are_those_whose_first_metric_should_be_small():
    tasks = {name: load_task(name) for name in TASKS}
    labeled = {name: task for name, task in tasks.items() if isinstance(task, LabelTask)}
    found = [name for name, task in labeled.items() if task.metrics[0] in LOWER_IS_BETTER]
    assert tuple(found) == BY_ERROR
