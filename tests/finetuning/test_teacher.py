"""Task distillation: ``finetune --teacher``."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from maskwright.cli.main import main
from maskwright.errors import InputError
from maskwright.finetuning.config import TASKS, FinetuneConfig
from maskwright.finetuning.fit import train_seeds
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.task import TaskData, TaskFiles, load_label_task, read_task
from maskwright.finetuning.teacher import ask_teacher
from maskwright.model_folder.classifier_folder import open_classifier, save_classifier
from maskwright.objectives.config import SoftTargetsConfig
from maskwright.progress import Pulse
from tests.cli.test_finetune import FAST, write_table
from tests.finetuning.helpers import TOKENIZER, make_loaded, write_nouns, write_tags
from tests.finetuning.test_task import CONFIG, CPU, LABELS, mean_scores

TAUGHT = replace(CONFIG, distill=SoftTargetsConfig(weight=1.0), epochs=20.0)
COLUMNS = {
    "classification": LABELS,
    "multilabel": LABELS,
    "regression": {"sentence1": "sentence1", "label": "value"},
    "tokens": {},
}


def write_examples(path: Path, task: str) -> Path:
    return write_tags(path) if task == "tokens" else write_nouns(path)


def shuffle_labels(path: Path, task: str) -> Path:
    """A copy in which the labels are those of other examples."""
    text = path.read_text(encoding="utf-8")
    draw, copy = random.Random(0), path.with_name(f"shuffled-{path.name}")
    header, *lines = text.splitlines()
    if task == "tokens":
        header, lines = "", text.splitlines()
    split = [line.rsplit(" ", 1) if task == "tokens" else line.split("\t", 2) for line in lines]
    labels = [parts.pop() for parts in split if len(parts) > 1]
    draw.shuffle(labels)
    joined = [
        (" " if task == "tokens" else "\t").join([*p, labels.pop()] if p[0] else p) for p in split
    ]
    copy.write_text("\n".join([header, *joined] if header else joined) + "\n", encoding="utf-8")
    return copy


def save_teacher(folder: Path, task: str, train: Path) -> Path:
    loaded = make_loaded()
    data = read_task(TaskFiles(task=task, train=train, columns=COLUMNS[task]), loaded, CONFIG)
    model = train_seeds(data, loaded.model, CONFIG, CPU).model
    save_classifier(folder, model, TOKENIZER, data.labels.names, data.task.problem)
    return folder


@pytest.mark.parametrize(
    ("task", "metric", "least"),
    [
        ("classification", "accuracy", 0.95),
        ("multilabel", "micro_f1", 0.95),
        ("regression", "pearson", 0.8),
        ("tokens", "span_f1", 0.95),
    ],
)
def test_answers_are_learned_without_any_correct_label(
    task: str, metric: str, least: float, tmp_path: Path
) -> None:
    right = write_examples(tmp_path / "train.tsv", task)
    teacher, wrong = save_teacher(tmp_path / "teacher", task, right), shuffle_labels(right, task)
    files = TaskFiles(task=task, train=wrong, valid=right, columns=COLUMNS[task])
    loaded = make_loaded()
    data = read_task(files, loaded, TAUGHT)
    taught = replace(data, soft_targets=ask_teacher(teacher, data, TAUGHT, Pulse()))
    alone, student = (
        mean_scores(train_seeds(each, loaded.model, TAUGHT, CPU).runs)[metric]["mean"]
        for each in (data, taught)
    )
    assert alone < least <= student


@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_a_student_that_agrees_has_no_gradient(task: str) -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = load_label_task(task).distill(logits, logits.detach(), 2.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.zeros(5, 3), atol=1e-6, rtol=0)
    teacher = torch.zeros(5, 3)
    soft = F.softmax(teacher / 2, -1) if task == "classification" else (teacher / 2).sigmoid()
    loss = load_label_task(task).distill(logits, teacher, 2.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    ours = F.softmax(logits / 2, -1) if task == "classification" else (logits / 2).sigmoid()
    mean = 5 if task == "classification" else 15
    torch.testing.assert_close(gradient, 2 * (ours - soft) / mean)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TaskData:
    train = write_nouns(tmp_path_factory.mktemp("nouns") / "train.tsv", 60)
    return read_task(
        TaskFiles(task="classification", train=train, columns=LABELS), make_loaded(), CONFIG
    )


def save_untrained(folder: Path, task: str, labels: tuple[str, ...]) -> Path:
    from maskwright.finetuning.network import build_classifier

    kind = load_label_task(task)
    model = build_classifier(make_loaded().model, FinetuneConfig(), kind.level, len(labels), 0)
    save_classifier(folder, model, TOKENIZER, labels, kind.problem)
    return folder


def test_labels_may_be_in_another_order(data: TaskData, tmp_path: Path) -> None:
    assert data.labels.names == ("animal", "thing")
    teacher = save_untrained(tmp_path / "teacher", "classification", ("thing", "animal"))
    answers = ask_teacher(teacher, data, CONFIG, Pulse())
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
    task: str, labels: tuple[str, ...], message: str, data: TaskData, tmp_path: Path
) -> None:
    teacher = save_untrained(tmp_path / "teacher", task, labels)
    with pytest.raises(InputError, match=message):
        ask_teacher(teacher, data, CONFIG, Pulse())


def test_a_teacher_that_cuts_sentences_elsewhere_is_refused(tmp_path: Path) -> None:
    files = TaskFiles(task="tokens", train=write_tags(tmp_path / "train.conll"))
    data = read_task(files, make_loaded(), replace(CONFIG, max_length=8))
    teacher = save_untrained(tmp_path / "teacher", "tokens", data.labels.names)
    with pytest.raises(InputError, match="max_length"):
        ask_teacher(teacher, data, CONFIG, Pulse())


def test_a_run_names_its_teacher(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for out in (teacher, student):
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert records
    assert main(["finetune", "--resume", str(student)]) == 0
    assert "already finished" in capsys.readouterr().err
    shutil.copy(Path(model) / "model" / "config.json", teacher / "model")
    assert main(taught) == 2
    assert "is not empty" in capsys.readouterr().err


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
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    table, model = write_table(tmp_path / "train.tsv"), str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "classification", "--train", str(table), *FAST]
    command += ["--columns", "sentence1=text", "label=right", "--out", str(tmp_path / "run")]
    if "embedding" in flags:
        command[command.index("label=right")] = "sentence2=right"
    assert main([*command, *(flag.format(model=model) for flag in flags)]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_every_task_with_labels_can_be_taught() -> None:
    assert {*TASKS} - {*COLUMNS} == {"embedding"}
