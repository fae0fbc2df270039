"""Task distillation (``finetune --teacher``), and thresholds of several labels."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import f1_score, precision_recall_curve
from torch import Tensor, nn

from maskwright.cli.main import main
from maskwright.console import Pulse
from maskwright.errors import InputError
from maskwright.finetuning.config import TASKS, FinetuneConfig, TaskFiles
from maskwright.finetuning.fit import (
    Fitting,
    ask_teacher,
    choose_threshold,
    score_logits,
    train_seeds,
)
from maskwright.finetuning.metrics import rank
from maskwright.finetuning.network import build_classifier, compute_logits
from maskwright.finetuning.task import TaskData, load_label_task, load_task, read_task
from maskwright.logs import read_metrics
from maskwright.model_folder.classifier_folder import open_classifier, save_classifier
from maskwright.objectives.config import SoftTargetsConfig
from tests.cli.test_finetune import FAST, write_table
from tests.command import Cli
from tests.finetuning.helpers import NOUNS, TOKENIZER, make_loaded, write_nouns, write_tags
from tests.finetuning.test_task import CONFIG, LABELS

PRECISE = replace(CONFIG, precision="fp32", distill=SoftTargetsConfig(0.7, 3.0))
COLUMNS = {
    "classification": LABELS,
    "multilabel": LABELS,
    "regression": {"sentence1": "sentence1", "label": "value"},
    "tokens": {},
    "ranking": {"sentence1": "query", "sentence2": "passage", "label": "label"},
}


def write_ranking(path: Path) -> Path:
    lines = [f"{animal}\tthe {one}\t{int(animal == one)}" for animal in NOUNS for one in NOUNS]
    path.write_text("\n".join(["query\tpassage\tlabel", *lines]) + "\n", encoding="utf-8")
    return path


def read_examples(path: Path, task: str) -> TaskData:
    write = {"tokens": write_tags, "ranking": write_ranking}.get(task, write_nouns)
    train = write(path)
    files = TaskFiles(task=task, train=train, valid=train, columns=COLUMNS[task])
    return read_task(files, make_loaded(), PRECISE)


def save_untrained(folder: Path, task: str, labels: tuple[str, ...], seed: int = 1) -> Path:
    kind = load_label_task(task)
    model = build_classifier(make_loaded().model, FinetuneConfig(), kind.level, len(labels), seed)
    model.head.output.weight.data *= 50
    save_classifier(folder, model, TOKENIZER, labels, kind.problem)
    return folder


def compute_reference(task: str, student: Tensor, teacher: Tensor) -> Tensor:
    """The teacher's part of the loss, with torch's own losses; T = 3."""
    if task in ("regression", "ranking"):
        return nn.MSELoss()(student, teacher)
    if task == "multilabel":
        return 9 * nn.BCEWithLogitsLoss()(student / 3, (teacher / 3).sigmoid())
    divergence = nn.KLDivLoss(reduction="batchmean")
    return 9 * divergence((student / 3).log_softmax(-1), (teacher / 3).softmax(-1))


@pytest.mark.parametrize("task", COLUMNS)
def test_the_loss_is_a_mean_of_labels_and_answers(task: str, tmp_path: Path):
    data = read_examples(tmp_path / "train.tsv", task)
    teacher = save_untrained(tmp_path / "teacher", task, data.labels.names)
    answers = ask_teacher(teacher, data, PRECISE, Pulse())
    kind, count = data.task, len(data.labels.names)
    student = build_classifier(make_loaded().model, PRECISE, kind.level, count, seed=0)
    numbers = [3, 0, 5]
    alone = Fitting(student, data, PRECISE, 0)._compute_loss(numbers)
    fitting = Fitting(student, replace(data, soft_targets=answers), PRECISE, 0)
    found = fitting._compute_loss(numbers)
    logits = compute_logits(student, data.train, TOKENIZER.pad_id, "fp32")
    ours, theirs = (
        torch.as_tensor(np.vstack([each[n] for n in numbers])) for each in (logits, answers)
    )
    expected = compute_reference(task, ours, (theirs - fitting.mean) / fitting.deviation)
    torch.testing.assert_close(found, 0.3 * alone + 0.7 * expected, atol=1e-5, rtol=1e-4)


def test_labels_may_be_in_another_order(tmp_path: Path):
    data = read_examples(tmp_path / "train.tsv", "classification")
    assert data.labels.names == ("animal", "thing")
    teacher = save_untrained(tmp_path / "teacher", "classification", ("thing", "animal"))
    answers = ask_teacher(teacher, data, PRECISE, Pulse())
    expected = compute_logits(open_classifier(teacher).model, data.train, TOKENIZER.pad_id, "fp32")
    np.testing.assert_allclose(answers, np.stack(expected)[:, ::-1], atol=1e-6)


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("classification", ("animal", "plant"), "such as plant"),
        ("multilabel", ("animal", "thing"), "which is not --task classification"),
        ("tokens", ("animal", "thing"), "which is not --task classification"),
    ],
)
def test_another_task_or_other_labels_are_refused(
    task: str, labels: tuple[str, ...], message: str, tmp_path: Path
):
    data = read_examples(tmp_path / "train.tsv", "classification")
    teacher = save_untrained(tmp_path / "teacher", task, labels)
    with pytest.raises(InputError, match=message):
        ask_teacher(teacher, data, PRECISE, Pulse())


def test_a_teacher_that_cuts_sentences_elsewhere_is_refused(tmp_path: Path):
    files = TaskFiles(task="tokens", train=write_tags(tmp_path / "train.conll"))
    data = read_task(files, make_loaded(), replace(CONFIG, max_length=8))
    teacher = save_untrained(tmp_path / "teacher", "tokens", data.labels.names)
    with pytest.raises(InputError, match="max_length"):
        ask_teacher(teacher, data, PRECISE, Pulse())


def test_a_run_names_its_teacher(workplace: Path, tmp_path: Path, cli: Cli):
    table, model = write_table(tmp_path / "train.tsv"), str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "classification", "--train", str(table), *FAST]
    command += ["--columns", "sentence1=text", "label=right"]
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    assert main([*command, "--out", str(teacher)]) == 0
    taught = [*command, "--out", str(student), "--teacher", str(teacher)]
    assert main(taught) == 0
    asked = json.loads((student / "provenance.json").read_text(encoding="utf-8"))["asked"]
    assert asked["teacher"] == str(teacher / "model")
    assert str(teacher / "model" / "model.safetensors") in asked["sha256"]
    first, taught_first = (read_metrics(out / "metrics.jsonl")[0] for out in (teacher, student))
    assert first["loss"] != taught_first["loss"]
    assert "already finished" in cli("finetune", "--resume", student)
    shutil.copy(Path(model) / "model" / "config.json", teacher / "model")
    assert "student" in cli.refuse(*taught)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--distill.weight", "0.3"], "distill.weight = 0.3"),
        (["--teacher", "{model}"], "is not a classifier"),
        (["--teacher", "{model}", "--task", "embedding"], "--teacher has no effect"),
    ],
)
def test_bad_input_is_one_line(
    flags: list[str], message: str, workplace: Path, tmp_path: Path,
    cli: Cli
):  # fmt: skip
    table, model = write_table(tmp_path / "train.tsv"), str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "classification", "--train", str(table), *FAST]
    command += ["--columns", "sentence1=text", "label=right", "--out", str(tmp_path / "run")]
    if "embedding" in flags:
        command[command.index("label=right")] = "sentence2=right"
    assert message in cli.refuse(*command, *(flag.format(model=model) for flag in flags))


def test_other_tasks_refuse_a_teacher():
    refused = {name for name in TASKS if "teacher" in load_task(name).unused}
    assert refused == TASKS.keys() - COLUMNS.keys() == {"embedding", "spans"}


def test_choose_threshold_finds_nearly_the_best_f1(tmp_path: Path):
    """scikit-learn tries every threshold."""
    data = read_examples(tmp_path / "train.tsv", "multilabel")
    targets = np.asarray(data.valid.targets)
    noise = np.random.default_rng(0).normal(0, 0.5, targets.shape)
    logits = [*(0.01 * (targets + noise) - 1.15).astype(np.float32)]  # all probabilities are 0.24
    assert score_logits(data, data.valid, logits)["micro_f1"] == 0
    threshold = choose_threshold(data, data.valid, logits)
    precision, recall, _ = precision_recall_curve(targets.ravel(), np.stack(logits).ravel())
    best = np.max(2 * precision * recall / (precision + recall))
    found = score_logits(data, data.valid, logits, threshold)
    assert best - 0.01 <= found["micro_f1"] <= best
    raw = score_logits(data, data.valid, logits)
    assert found["valid_loss"] == raw["valid_loss"]


def test_the_threshold_is_in_the_saved_model(tmp_path: Path):
    """transformers assigns a label from a probability of one half on."""
    config = replace(PRECISE, epochs=0.5, learning_rate=1e-3, distill=SoftTargetsConfig())
    data = read_examples(tmp_path / "train.tsv", "multilabel")
    data = replace(data, test=data.train, test_baselines=data.baselines)
    loaded = make_loaded()
    model, [run], _ = train_seeds(data, loaded.model, config, torch.device("cpu"))
    assert run.threshold < -0.1
    assert run.scores["micro_f1"] > data.baselines["majority"]["micro_f1"] - 0.2
    assert run.test_scores == pytest.approx(run.scores)  # the same examples
    names = data.labels.names
    save_classifier(tmp_path / "model", model, TOKENIZER, names, "multi_label_classification")
    theirs: Any = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "model"
    ).eval()
    ids = [torch.tensor([one.ids]) for one in data.valid.inputs]
    with torch.inference_mode():
        found = np.stack([theirs(each).logits[0].sigmoid().numpy() > 0.5 for each in ids])
    score = f1_score(np.asarray(data.valid.targets), found, average="micro")
    assert score == pytest.approx(run.scores["micro_f1"])


def test_numbers_are_chosen_by_a_score_in_which_the_scale_counts(tmp_path: Path):
    data = read_examples(tmp_path / "train.tsv", "regression")
    targets = np.asarray(data.valid.targets)
    scores = [
        score_logits(data, data.valid, [*(factor * targets[:, None])]) for factor in (1.0, 9.0)
    ]
    assert rank(data.deciding, scores[0]) > rank(data.deciding, scores[1])
    assert scores[0]["spearman"] == scores[1]["spearman"]
