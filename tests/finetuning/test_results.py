"""What is said of scores."""

from typing import Any

import pytest

from maskwright.cli.finetune import show_scores
from maskwright.finetuning.results import describe_defeats


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
def test_advice_follows_from_how_the_run_ended(run: dict[str, int], flag: str) -> None:
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
