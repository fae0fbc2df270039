"""New labeled examples: the scores are those of fine-tuning on the same file."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import maskwright
from maskwright.cli.main import main
from maskwright.evaluation.suite_labels import resample_metric
from maskwright.finetuning.metrics import compute_metric
from maskwright.model_folder.folder import save_model
from tests.command import Cli
from tests.finetuning.helpers import make_loaded, write_nouns, write_tags

FAST = [
    "--epochs",
    "1",
    "--batch_size",
    "16",
    "--seeds",
    "1",
    "--precision",
    "fp32",
    "--beside",
    "off",
]
TASKS = {
    "classification": ("sentence1=sentence1", "label=label"),
    "regression": ("sentence1=sentence1", "sentence2=sentence2", "label=value"),
    "tokens": (),
}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskwright.evaluation.suite_labels.NUM_RESAMPLES", 20)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "model"
    loaded = make_loaded()
    save_model(folder, loaded.model, loaded.tokenizer)
    return folder


Tune = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def tune(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tune:
    """Return the run of a task, and the file that it was tested on; nobody changes them."""

    @cache
    def tune(task: str) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp(task)
        write = write_tags if task == "tokens" else write_nouns
        end = "conll" if task == "tokens" else "tsv"
        train, test = write(folder / f"train.{end}", 80), write(folder / f"test.{end}", 50)
        command = ["finetune", str(encoder), "--task", task, "--train", str(train), *FAST]
        columns = ["--columns", *TASKS[task]] if TASKS[task] else []
        assert main([*command, *columns, "--test", str(test), "--out", str(folder / "run")]) == 0
        return folder / "run", test

    return tune


@pytest.mark.parametrize("task", TASKS)
def test_scores_are_those_of_fine_tuning(task: str, tune: Tune):
    run, test = tune(task)
    expected = json.loads((run / "results.json").read_text())["test"]
    [suite] = maskwright.evaluate(run, suite="labels", data=test)["suites"]
    scores = {score["name"].removeprefix("labels/"): score for score in suite["scores"]}
    assert suite["settings"]["task"] == task
    assert suite["settings"]["num_cut"] == 0
    assert {*scores} == {*expected["scores"]} - {"valid_loss"}
    for name, score in scores.items():
        assert score["value"] == pytest.approx(expected["scores"][name]["mean"], abs=1e-6)
        assert score["num_samples"] == 50
        is_undefined = name in ("spearman", "pearson")  # of a constant
        assert (score["baseline"] is None) == (task == "tokens" or is_undefined)
    # Nothing in the run is replaced: it is no pretraining run.
    assert not (run / "evaluation.json").exists()


def test_columns_of_other_names_are_found_and_unknown_labels_are_named(
    encoder: Path, tune: Tune, tmp_path: Path, cli: Cli
):
    run, test = tune("classification")
    [expected] = maskwright.evaluate(run, suite="labels", data=test)["suites"]
    header, *lines = test.read_text().splitlines()
    other = tmp_path / "other.tsv"
    renamed = header.replace("sentence1", "text").replace("sentence2", "x")
    other.write_text("\n".join([renamed, *lines]))
    for folder in (run, run / "model"):
        [found] = maskwright.evaluate(folder, suite="labels", data=other)["suites"]
        assert [s["value"] for s in found["scores"]] == [s["value"] for s in expected["scores"]]
    test = tmp_path / "test.tsv"
    test.write_text("\n".join([header, *lines]).replace("animal", "beast"))
    assert "has the label beast, which no training example has" in cli.refuse(
        "evaluate", run, "--suite", "labels", "--data", test
    )
    test.write_text(header + "\n")
    assert "test.tsv" in cli.refuse("evaluate", run, "--suite", "labels", "--data", test)
    assert "--data" in cli.refuse("evaluate", run, "--suite", "labels")
    assert main(["evaluate", str(run), "--suite", "labels,fill", "--data", str(test)]) == 2
    assert "not a classifier" in cli.refuse(
        "evaluate", encoder, "--suite", "labels", "--data", test
    )


def test_single_texts_and_pairs_are_not_taken_for_each_other(tune: Tune, tmp_path: Path, cli: Cli):
    pairs, _ = tune("regression")
    single = tmp_path / "single.tsv"
    single.write_text("text\tlabel\nthe cat\t1\nthe dog sees\t2\n")
    assert "was trained on pairs" in cli.refuse(
        "evaluate", pairs, "--suite", "labels", "--data", single
    )
    texts, test = tune("classification")
    named = tmp_path / "named.tsv"
    named.write_text(test.read_text().replace("sentence1\tsentence2", "premise\thypothesis"))
    scored = [
        [score["value"] for score in suite["scores"]]
        for folder, data in ((texts, test), (texts / "model", test), (texts, named))
        for suite in maskwright.evaluate(folder, suite="labels", data=data)["suites"]
    ]
    assert scored[0] == scored[1] == scored[2]


def test_an_interval_contains_its_value(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("maskwright.evaluation.suite_labels.NUM_RESAMPLES", 100)
    draw = np.random.default_rng(0)
    true = draw.integers(0, 2, 200)
    found = np.where(draw.random(200) < 0.8, true, 1 - true)
    interval = resample_metric("accuracy", true, found)
    assert interval is not None
    low, high = interval
    value = compute_metric("accuracy", true, found)
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.8 * 0.2 / 200), rel=0.2)
    assert resample_metric("accuracy", true, true) is None
