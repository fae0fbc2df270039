"""``finetune --beside``: the fit of the linear model, and its way through all that answers."""

import csv
import json
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

import maskwright
from maskwright.finetuning.baselines import count_words, fit_vectorizer
from maskwright.finetuning.beside import FOLDER_NAME, open_embedder
from maskwright.finetuning.config import Request, TaskFiles
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.fit_beside import (
    MAX_EXAMPLES,
    Parts,
    Vectors,
    choose_shift,
    fit_linear,
    fit_parts,
    is_due,
)
from maskwright.finetuning.predict import Predictor
from maskwright.finetuning.task import TaskData, read_task
from maskwright.finetuning.text_tasks import Ranking
from maskwright.model.config import ProblemType
from maskwright.serving.config import ServeConfig
from maskwright.serving.pipelines import Query, TextClassificationPipeline, open_pipeline
from maskwright.serving.schemas import TextClassificationParameters
from tests.command import Cli
from tests.finetuning.helpers import make_loaded, write_nouns, write_tags
from tests.finetuning.test_task import CONFIG, LABELS

FLAGS = ("--epochs", "1", "--learning_rate", "0.0001", "--device", "cpu")


def read_nouns(tmp_path: Path, task: str = "classification", count: int = 60) -> TaskData:
    columns = {**LABELS, "label": "value"} if task == "regression" else LABELS
    train = write_nouns(tmp_path / "train.tsv", count)
    return read_task(TaskFiles(task=task, train=train, columns=columns), make_loaded(), CONFIG)


@pytest.mark.parametrize(
    ("problem", "num_labels"),
    [
        ("single_label_classification", 2),
        ("single_label_classification", 3),
        ("multi_label_classification", 3),
        ("regression", 1),
    ],
)
def test_fit_linear_answers_as_scikit_learn(problem: ProblemType, num_labels: int):
    draw = np.random.default_rng(0)
    features = sparse.csr_matrix(draw.normal(size=(60, 5)))
    model: Any = LogisticRegression(C=10.0, max_iter=1000)
    if problem == "regression":
        targets, model = draw.normal(size=60), Ridge()
    elif problem == "single_label_classification":
        targets = draw.integers(0, num_labels, 60)
    else:
        targets = draw.integers(0, 2, (60, num_labels)).astype(np.float32)
        targets[:, 2] = 1  # all examples have this label
        model = OneVsRestClassifier(model)
    weights, bias = fit_linear(problem, features, targets, 10.0, num_labels)
    found = features @ weights.T + bias
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(features, targets)
    if problem == "regression":
        np.testing.assert_allclose(found[:, 0], model.predict(features))
        return
    raised = np.exp(found)
    several = problem == "multi_label_classification"
    chances = raised / (1 + raised if several else raised.sum(1, keepdims=True))
    np.testing.assert_allclose(chances, model.predict_proba(features), atol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_the_saved_model_is_the_sum_of_its_parts(scale: float, tmp_path: Path):
    data = read_nouns(tmp_path)
    rows = data.train.rows
    texts = [row.texts for row in rows]
    vectors = Vectors(open_embedder(make_loaded()))
    shift = np.array([0.25, -0.25])
    parts = Parts(scale, 10.0, encoder=0.5, linear=2.0, shift=shift)
    beside = fit_parts(data, rows, parts, vectors)
    bag = fit_vectorizer(texts)
    joined = count_words(bag, texts)
    if scale:
        each = vectors(texts)
        size = (each.std(0) + 1e-6) * each.shape[1] ** 0.5
        joined = sparse.hstack([joined, scale * (each - each.mean(0)) / size]).tocsr()
    model = LogisticRegression(C=10.0, max_iter=1000).fit(joined, np.asarray(data.train.targets))
    logits = np.random.default_rng(0).normal(size=(len(rows), 2)).astype(np.float32)
    found = beside(logits, texts)
    expected = 0.5 * (logits[:, 1] - logits[:, 0]) - 0.5 + 2 * model.decision_function(joined)
    np.testing.assert_allclose(found[:, 1] - found[:, 0], expected, atol=1e-3)


def test_choose_shift_answers_each_of_two_labels_as_often_as_it_occurs(tmp_path: Path):
    """A weak model always answers the more frequent label."""
    data = replace(read_nouns(tmp_path), deciding="matthews", metrics=("matthews", "accuracy"))
    draw = np.random.default_rng(0)
    targets = (draw.random(400) < 0.3).astype(np.int64)
    examples = Examples([data.train.inputs[0]] * 400, targets)
    logits = np.zeros((400, 2), np.float32)
    logits[:, 1] = -1 + 0.3 * draw.normal(size=400) + 0.3 * targets
    shift = choose_shift(data, examples, logits)
    answers = (logits + shift).argmax(1)
    assert logits.argmax(1).mean() < 0.01
    assert answers.mean() == pytest.approx(targets.mean(), abs=0.01)
    accurate = replace(data, deciding="accuracy")
    assert not choose_shift(accurate, examples, logits).any()


@pytest.mark.parametrize(
    ("change", "count", "due"),
    [
        ({}, 60, True),
        ({"beside": "off"}, 60, False),
        ({"private": True}, 60, False),
        ({"class_weights": True}, 60, False),
        ({"teacher": Path("teacher")}, 60, False),
        ({"task": "ranking"}, 60, False),
        ({"task": "tokens"}, 60, False),
        ({}, MAX_EXAMPLES + 200, False),
        ({"beside": "on"}, MAX_EXAMPLES + 200, True),
    ],
)
def test_is_due_for_small_tables_of_texts(
    change: dict[str, Any], count: int, due: bool, tmp_path: Path
):
    change = dict(change)
    task, teacher = change.pop("task", "classification"), change.pop("teacher", None)
    if task == "tokens":
        files = TaskFiles(task=task, train=write_tags(tmp_path / "train.conll"))
        data = read_task(files, make_loaded(), CONFIG)
    else:
        data = read_nouns(tmp_path, "classification", count)
        if task == "ranking":
            data = replace(data, task=Ranking())
    files = TaskFiles(task=task, train=tmp_path / "train.tsv", columns=LABELS)
    request = Request(Path("model"), files, replace(CONFIG, **change), teacher=teacher)
    lines = list[str]()
    assert is_due(request, data, lines.append) == due
    assert len(lines) == (not due and count > MAX_EXAMPLES)


def write_words(path: Path, count: int) -> Path:
    """Texts whose label is one of many words, which a small encoder does not learn so fast."""
    draw = random.Random(count)
    lines = ["text\tright"]
    for _ in range(count):
        word = draw.choice("abcdefghijkl")
        others = draw.choices(["the", "sees", "and", "small"], k=6)
        lines.append(f"{' '.join(others)} {word} {others[0]}\t{'yes' if word < 'g' else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def answered(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose linear model knows what its encoder does not, with the lines it printed."""
    folder = tmp_path_factory.mktemp("beside")
    lines = list[str]()
    maskwright.finetune(
        workplace / "runs" / "small",
        task="classification",
        train=write_words(folder / "train.tsv", 160),
        test=write_words(folder / "test.tsv", 100),
        columns={"sentence1": "text", "label": "right"},
        out=folder / "run",
        epochs=1,
        learning_rate=1e-4,
        device="cpu",
        report=lines.append,
    )
    (folder / "printed.txt").write_text("\n".join(lines))
    return folder / "run"


def test_the_words_help_an_encoder_that_does_not_know_them(answered: Path):
    results = json.loads((answered / "results.json").read_text())
    judged = results["test"]
    alone = judged["baselines"]["encoder alone"]["accuracy"]
    found = judged["scores"]["accuracy"]["mean"]
    assert found >= 0.95 > 0.8 > alone
    printed = (answered.parent / "printed.txt").read_text()
    [line] = [one for one in printed.splitlines() if one.startswith("beside: on")]
    assert "encoder alone" in line
    card = (answered / "model" / "README.md").read_text()
    assert f"with the encoder alone it is {alone:.4f}" in card
    assert results["scores"]["accuracy"]["mean"] >= 0.9  # by a model without these examples


def test_predict_serve_and_evaluate_answer_with_it(answered: Path, cli: Cli):
    with (answered / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [row["sentence1"] for row in rows]
    answers = Predictor(answered, "cpu")(texts)
    assert [answer.label for answer in answers] == [row["prediction"] for row in rows]
    chances = [answer.score or 0.0 for answer in answers]
    assert chances == pytest.approx([float(row["probability"]) for row in rows], abs=2e-2)
    pipeline = open_pipeline(answered / "model", "cpu")
    assert isinstance(pipeline, TextClassificationPipeline)
    queries = [Query(text, None, TextClassificationParameters()) for text in texts]
    pipeline.check(queries, ServeConfig())
    served: Any = pipeline(queries)
    assert [each[0]["label"] for each in served] == [answer.label for answer in answers]
    test = answered.parent / "test.tsv"
    printed = cli("evaluate", answered, "--suite", "labels", "--data", test, "--json")
    scores = json.loads(printed)["suites"][0]["scores"]
    found = {score["name"]: score["value"] for score in scores}["labels/accuracy"]
    judged = json.loads((answered / "results.json").read_text())["test"]["scores"]
    assert found == judged["accuracy"]["mean"]


def test_an_export_says_that_it_lacks_it(answered: Path, tmp_path: Path, cli: Cli):
    printed = cli("export", answered, "--to", "hf", "--out", tmp_path / "hf")
    assert f"{FOLDER_NAME} is not included" in printed
    assert not (tmp_path / "hf" / FOLDER_NAME).exists()
    shown = cli("publish", answered, "--repo", "me/words", "--dry-run")
    assert f"{FOLDER_NAME} is not included" in shown


def test_a_handful_of_examples_has_no_folds(workplace: Path, tmp_path: Path):
    train = tmp_path / "train.tsv"
    train.write_text("text\tright\nthe a sees\tyes\nthe x sees\tno\n")
    lines = list[str]()
    maskwright.finetune(
        workplace / "runs" / "small",
        task="classification",
        train=train,
        valid=write_words(tmp_path / "valid.tsv", 20),
        columns={"sentence1": "text", "label": "right"},
        out=tmp_path / "run",
        epochs=1,
        device="cpu",
        report=lines.append,
    )
    assert any(line.startswith("beside: off") for line in lines)
    assert not (tmp_path / "run" / "model" / FOLDER_NAME).exists()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--task", "tokens", "--beside", "on"), "--task tokens"),
        (("--task", "ranking", "--beside", "on"), "--task ranking"),
        (("--task", "classification", "--beside", "on", "--private"), "--private"),
    ],
)
def test_it_is_refused_where_it_cannot_be(
    more: tuple[str, ...], named: str, workplace: Path, tmp_path: Path, cli: Cli
):
    train = write_tags(tmp_path / "train.conll") if "tokens" in more else None
    train = train or write_words(tmp_path / "train.tsv", 20)
    line = cli.refuse(
        *("finetune", workplace / "runs" / "small", "--train", train, "--out", tmp_path / "run"),
        *more,
    )
    assert "--beside on" in line
    assert named in line
