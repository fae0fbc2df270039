"""The page of a fine-tuning shows its results, and nothing in them is markup."""

from typing import Any

import pytest

from maskwright.finetuning import report
from maskwright.finetuning.answers import Answers
from maskwright.finetuning.config import Task
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.report import render_finetuning
from maskwright.finetuning.tables import LabelledRow

EVIL = "<script>alert(1)</script>"


def render(
    task: Task, true: list[Any], found: list[Any], names: tuple[str, ...] = ("a", "b"), **more: Any
) -> str:
    rows: list[Any] = [LabelledRow("a", {"sentence1": f"{EVIL} {n}"}) for n in range(len(true))]
    if task == "tokens":
        rows = [TaggedSentence("a", (EVIL, "cat"), tuple(tags)) for tags in true]
    probabilities = [0.6 + n / 10 if task == "classification" else None for n in range(len(true))]
    answers = Answers(
        Labels(task, names, tuple(1 for _ in names)), rows, true, found, probabilities
    )
    scores = {"accuracy": {"mean": 0.5, "deviation": None}}
    results = {
        "task": task,
        "deciding_metric": "accuracy",
        "labels": dict.fromkeys(names, 1),
        "train_examples": 1000,
        "valid_examples": len(true),
        "baselines": {"majority": {"accuracy": 0.25}, "bag of words": {"accuracy": 0.3}},
        "scores": scores,
        "runs": [{"seconds": 90.0}],
        "saved_seed": 0,
        "classes": answers.score_classes(),
        "confusion_matrix": answers.count_confusions(),
        **more,
    }
    record = {"seed": 0, "epoch": 1.0, "loss": 0.5, "valid_loss": 0.4, "accuracy": 0.5}
    control = {**record, "run": "control", "valid_loss": None}  # a NaN, as metrics.jsonl has it
    return render_finetuning(EVIL, results, [record, control], answers, {"dropout": EVIL}, [EVIL])


def test_a_page_holds_scores_classes_confusions_and_mistakes() -> None:
    page = render("classification", ["a", "b", "b"], ["a", "a", "a"])
    assert "0.2500</td><td>0.3000</td><td>0.5000" in page
    assert '<th scope="row">b</th><td>0.000</td><td>0.000</td><td>0.000</td><td>2</td>' in page
    assert "100 % of b" in page
    assert page.index("&lt;script&gt;alert(1)&lt;/script&gt; 2") < page.index("&lt;/script&gt; 1")
    assert "These examples chose the weights" in page
    assert page.count("<svg") == 1


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
    task: Task, true: list[Any], found: list[Any], names: tuple[str, ...]
) -> None:
    page = render(task, true, found, names)
    assert EVIL not in page
    assert "src=" not in page
    assert ("Confusion matrix" in page) == (task in ("classification", "tokens") and len(names) < 9)
    assert ("Most frequent confusions" in page) == (len(names) > 20)
    assert "Mistakes" in page


def test_a_test_is_shown_instead_of_the_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    scores = {"accuracy": {"mean": 0.875, "deviation": 0.01}}
    judged = {"baselines": {"majority": {"accuracy": 0.1}}, "scores": scores, "examples": 7}
    page = render("classification", ["a"], ["a"], test={**judged, "random_encoder": scores})
    assert "Scores on the test examples" in page
    assert "0.1000</td><td>0.8750 ± 0.0100</td><td>0.8750 ± 0.0100" in page
    assert "Mistakes" not in page
    assert "<svg" not in page
    assert "maskwright[plots]" in page
