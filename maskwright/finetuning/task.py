"""The interface of fine-tuning tasks: reading examples, loss, answers, scores, baselines.

A `Task` is one class and one line in `config.TASKS`. Most label texts or words: a `LabelTask` has
six methods of its own. N examples, K labels.
"""

import math
import pkgutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.corpus.column_roles import FIRST, Column, LabelKind, find_roles, infer_roles
from maskwright.corpus.table_files import (
    fold_name,
    list_names,
    parse_columns,
    peek_rows,
    read_columns,
)
from maskwright.errors import ConfigError, CorpusError, show_value
from maskwright.finetuning.config import TASKS, FinetuneConfig, Request, TaskFiles
from maskwright.finetuning.conll import marks_entities
from maskwright.finetuning.connected import describe_near_copies
from maskwright.finetuning.doubts import describe_doubts
from maskwright.finetuning.examples import Examples, Row
from maskwright.finetuning.metrics import Baselines, Metric, Scores, describe_void
from maskwright.finetuning.split import split_after, split_examples
from maskwright.model.config import Level, Pooling, ProblemType
from maskwright.model_folder.folder import Loaded
from maskwright.tokenizer.lost import check_known
from maskwright.tokenizer.template import wrap_apart
from maskwright.tokenizer.tokenizer import Tokenizer

Tell = Callable[[str], None]
Logits = NDArray[np.float32]  # [K] for a text, [words, K] for a sentence
EMBEDDING_SETTINGS = ("dimensions", "negatives", "objective")  # settings
SPLIT_FLAGS = ("group", "valid_after")  # of tables with labels
Baseline = Callable[[Examples], Any]  # returns predictions as `LabelTask.collect` does


@dataclass(frozen=True)
class Labels:
    """The labels of a task in the order of the logits.

    Attributes:
        counts: the frequency of each label in the training examples.
        num_unanswerable: the number of questions among them that have no answer.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...] = ()
    num_unanswerable: int = 0

    def encode(self, names: Sequence[str], place: str) -> list[int]:
        """Return the ids of the labels of an example, whose width and case may differ.

        Raise CorpusError for an unknown one.
        """
        numbers = {fold_name(name): number for number, name in enumerate(self.names)}
        numbers |= {name: number for number, name in enumerate(self.names)}
        found = [numbers.get(name, numbers.get(fold_name(name))) for name in names]
        for name, number in zip(names, found, strict=True):
            if number is None:
                known = ", ".join(self.names[:10]) + ", …" * (len(self.names) > 10)
                raise CorpusError(
                    f"{place} has the label {name}, which no training example has: they have "
                    f"{known}."
                )
        return [number for number in found if number is not None]


@dataclass(frozen=True)
class Answer:
    """The prediction for one input.

    Attributes:
        label: the most probable label; for multi-label tasks, all labels above one half; for
            regression, a number; for a word that the tokenizer drops, ``O`` if there is one or "";
            for a question, its answer, or "" if there is none.
        score: the probability of that label; None for several labels, a number, or a dropped word.
        probabilities: the probability of every label; empty for a number, a dropped word, or a
            question.
        span: the first character of the answer to a question, and the one after its last.
    """

    label: str | list[str] | float
    score: float | None
    probabilities: Mapping[str, float]
    span: tuple[int, int] | None = None


class Task(ABC):
    """A task that a model can be fine-tuned for.

    Attributes:
        name: the key in `config.TASKS`.
        roles: the roles of the columns of its examples.
        unused: settings, ``test`` or ``control`` that have no effect on the task.
        label_kind: the content of a column of labels, by which it is recognized; None: it is not.
    """

    name: str
    roles: tuple[str, ...] = ("sentence1", "sentence2", "label")
    unused: tuple[str, ...] = ()
    label_kind: LabelKind | None = None

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        """Return the given columns by role, and the others by their usual names or their content.

        Raise CorpusError if two columns may have the same role.
        """
        names = list_names(train)
        found = {**find_roles(names, self.roles, given, train), **parse_columns(given)}
        if self.label_kind and not {*found.values()} <= {*names}:
            names, rows = peek_rows(train)
            found |= infer_roles(names, rows, found, given, self.label_kind)
        return found


def report_columns(task: Task, files: TaskFiles, report: Tell) -> None:
    """Report the columns; raise CorpusError unless all tables have those of the training file."""
    if not files.columns:
        return
    if FIRST in task.roles:  # else the columns of CoNLL files, which are checked in each line
        for path in filter(None, (files.train, files.valid, files.test)):
            next(read_columns(path, files.columns_of(path), files.has_header, Counter()), None)
    report(f"columns: {', '.join(f'{role} = {name}' for role, name in files.columns.items())}")


class CustomTask(Task):
    """A task without labels, which implements its own training."""

    @abstractmethod
    def train(self, request: Request, out: Path, report: Tell) -> None:
        """Train, and write the model, its scores and its records to the run directory `out`."""


class LabelTask(Task):
    """A task with labels for each text or each word; the defaults are those of one label.

    Attributes:
        level: what is labeled: ``text``, ``token``, or a ``span`` of a text.
        problem: the ``problem_type`` of ``config.json``, as in transformers.
        metrics: the metrics to report; the first selects the best weights.
        other_metrics: further metrics that may select the weights instead.
        scales_targets: True if numbers are scaled to mean 0 and deviation 1 for training.
        mistakes_note: the note above the mistakes in the HTML report.
        notes: lines for the user about the examples that were read.
    """

    unused = EMBEDDING_SETTINGS
    level: Level = "text"
    problem: ProblemType = "single_label_classification"
    metrics: tuple[Metric, ...] = ()
    other_metrics: tuple[Metric, ...] = ()
    scales_targets = False
    mistakes_note = (
        "The wrong answers with the highest probability. Often the label is wrong, not the answer."
    )

    def __init__(self) -> None:
        self.notes: list[str] = []

    @property
    def has_classes(self) -> bool:
        """True if the labels are names: neither numbers nor answers."""
        return self.problem != "regression" and self.level != "span"

    @abstractmethod
    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        """Return the examples of a file; count skipped rows, or raise if `skipped` is None.

        Those of `files.train` have labels that need no other row.
        """

    def list_labels(self, row: Row) -> list[str]:
        """Return the labels of one example; none for numbers and answers."""
        return []

    @abstractmethod
    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return the labels of the training examples."""

    @abstractmethod
    def encode(
        self, rows: Sequence[Row], labels: Labels, tokenizer: Tokenizer, max_length: int
    ) -> Examples:
        """Return examples as inputs of at most `max_length` tokens, with their targets."""

    @abstractmethod
    def collect(self, examples: Examples, logits: Sequence[Logits]) -> Any:
        """Return the predictions for all examples from their logits."""

    @abstractmethod
    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        """Return the scores of the predictions that `collect` or a baseline returned."""

    def list_void(self, labels: Labels, metrics: Sequence[str], examples: Examples) -> list[str]:
        """Return the metrics that are undefined even for the labels of these examples."""
        if self.level == "span" or not examples.rows:
            return []
        truth = examples.targets if examples.sentences is None else examples.sentences.targets
        truth = truth if self.level == "token" else np.asarray(truth)
        scores = self.score(labels, metrics, examples, truth)
        return [name for name, value in scores.items() if math.isnan(value)]

    @abstractmethod
    def fit_baselines(self, labels: Labels, train: Examples) -> dict[str, Baseline]:
        """Return the baselines by name, fitted to the training examples."""

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean loss of logits [N, K]; `weights` [K] are class weights."""
        return F.cross_entropy(logits, targets, weight=weights)


def choose_metrics(
    task: LabelTask, labels: Labels, chosen: Metric | None, first: Sequence[Metric] = ()
) -> tuple[str, tuple[str, ...]]:
    """Return the metric that selects the weights, and all metrics to report.

    The user's choice precedes the metrics of a preset (`first`). Raise ConfigError if it is not a
    metric of the task. Tags that mark no entities, such as parts of speech, have no F1 of entities.
    """
    usual = task.metrics
    if task.level == "token" and not marks_entities(labels.names):
        usual = usual[::-1]
    deciding, known = chosen or (*first, *usual)[0], [*task.metrics, *task.other_metrics]
    if len(labels.names) != 2 and "f1" in task.other_metrics:
        known.remove("f1")  # binary F1 is that of the second label
    if deciding not in known:
        of = f" of {len(labels.names)} labels" if "f1" in task.other_metrics else ""
        rule = f"is not a metric of {task.name}{of}"
        raise ConfigError("metric", deciding, rule, f"Choose from {', '.join(known)}.")
    return deciding, tuple(dict.fromkeys((*first, deciding, *usual)))


def decide(problem: ProblemType, logits: NDArray[np.float32]) -> NDArray[Any]:
    """Return the predictions from logits [N, K], in the form of the targets."""
    if problem == "regression":
        return logits[:, 0]
    is_single = problem == "single_label_classification"
    return logits.argmax(1) if is_single else (logits > 0).astype(np.float32)


def name_values(problem: ProblemType, labels: Labels, values: NDArray[Any]) -> list[Any]:
    """Return targets or predictions as labels, lists of labels, or numbers."""
    if problem == "regression":
        return values.tolist()
    if problem == "single_label_classification":
        return [labels.names[number] for number in values]
    names = np.array(labels.names, object)
    return [names[one > 0].tolist() for one in values]


def make_answers(problem: ProblemType, labels: Labels, logits: NDArray[np.float32]) -> list[Answer]:
    """Return the answer for each row of logits [N, K]."""
    named = name_values(problem, labels, decide(problem, logits))
    if problem == "regression":
        return [Answer(value, None, {}) for value in named]
    scores, is_single = torch.as_tensor(logits), problem == "single_label_classification"
    probabilities = (scores.softmax(1) if is_single else scores.sigmoid()).numpy()
    found = [dict(zip(labels.names, row, strict=True)) for row in probabilities.tolist()]
    return [
        Answer(name, each[name] if is_single else None, each)
        for name, each in zip(named, found, strict=True)
    ]


def load_task(name: str) -> Task:
    """Return the task of a name in `config.TASKS`."""
    return cast(type[Task], pkgutil.resolve_name(TASKS[name][0]))()


def load_label_task(name: str) -> LabelTask:
    """Return the task of a name in `config.TASKS` that labels texts or words."""
    task = load_task(name)
    assert isinstance(task, LabelTask), f"{name} has no labels"
    return task


def find_label_task(level: Level, problem: ProblemType) -> LabelTask:
    """Return the first task with this level and problem, for the answers of a saved model."""
    tasks = (load_task(name) for name in TASKS)
    labeled = (task for task in tasks if isinstance(task, LabelTask) and task.level == level)
    return next(task for task in labeled if level != "text" or task.problem == problem)


@dataclass(frozen=True)
class TaskData:
    """The examples of a task as inputs of one model, and the scores of its baselines.

    Attributes:
        metrics: the metrics to report; `deciding` selects the best weights.
        pad_id: the tokenizer's padding id.
        pooling: the pooling of the head; None: that of the model family.
        test: the test examples, if there are any.
        baselines: the scores of the baselines on the validation examples.
        test_baselines: their scores on the test examples.
        skipped: the number of rows with too few columns, by file.
        soft_targets: a teacher's logits for each training example, if there is a teacher.
    """

    task: LabelTask
    labels: Labels
    train: Examples
    valid: Examples
    metrics: Sequence[str]
    deciding: str
    pad_id: int
    pooling: Pooling | None = None
    test: Examples | None = None
    baselines: Baselines = field(default_factory=dict[str, Scores])
    test_baselines: Baselines = field(default_factory=dict[str, Scores])
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    soft_targets: Sequence[Logits] | None = None

    @property
    def held_out(self) -> list[Examples]:
        """The validation examples, and the test examples if there are any."""
        return [self.valid] if self.test is None else [self.valid, self.test]


def read_task(files: TaskFiles, loaded: Loaded[Any], config: FinetuneConfig) -> TaskData:
    """Read the examples of a task and score its baselines.

    Raise ConfigError if a length exceeds the model's maximum, or the task does not have the metric;
    CorpusError if a file cannot be read or has too few examples.
    """
    task, skipped = load_label_task(files.task), Counter[str]()
    _choose_inputs(task, files, loaded, config)  # raises before the files are read
    sets = read_sets(task, files, skipped if files.skips_short else None)
    data = encode_sets(task, sets, files, loaded, config)
    return replace(data, skipped=dict(skipped))


def encode_sets(
    task: LabelTask,
    sets: Sequence[Sequence[Row]],
    files: TaskFiles,
    loaded: Loaded[Any],
    config: FinetuneConfig,
) -> TaskData:
    """Return training, validation and perhaps test examples as inputs; raise as `read_task`."""
    pooling, tokenizer, max_length = _choose_inputs(task, files, loaded, config)
    paths = (files.train, files.valid or files.train, files.test)
    for rows, path in zip(sets, paths, strict=False):
        check_known(tokenizer, (text for row in rows for text in row.texts), str(path))
    labels = task.find_labels(sets[0])
    named = [[task.list_labels(row) for row in rows] for rows in sets]
    task.notes += describe_doubts(sets, named, labels.names)
    task.notes += describe_near_copies(sets)
    deciding, metrics = choose_metrics(task, labels, config.metric, files.metrics)
    train, *held_out = (task.encode(rows, labels, tokenizer, max_length) for rows in sets)
    fitted = task.fit_baselines(labels, train)
    scores = [
        {name: task.score(labels, metrics, each, answer(each)) for name, answer in fitted.items()}
        for each in held_out
    ]
    for kind, each in zip(("validation", "test"), held_out, strict=False):
        if void := task.list_void(labels, metrics, each):
            verb = "says" if len(void) == 1 else "say"
            task.notes.append(f"{' and '.join(void)} {verb} nothing: {describe_void(kind)}")
    test = {"test": held_out[1], "test_baselines": scores[1]} if len(held_out) > 1 else {}
    data = TaskData(task, labels, train, held_out[0], metrics, deciding, tokenizer.pad_id)
    return replace(data, pooling=pooling, baselines=scores[0], **test)


def _choose_inputs(
    task: LabelTask, files: TaskFiles, loaded: Loaded[Any], config: FinetuneConfig
) -> tuple[Pooling | None, Tokenizer, int]:
    """Return the pooling, the tokenizer that wraps inputs for it, and their maximum length."""
    width, is_number = loaded.model.config.hidden_size, task.problem == "regression"
    pooling = config.choose_pooling(width, "sentence2" in files.columns, is_number)
    tokenizer = wrap_apart(loaded.tokenizer) if pooling == "bi" else loaded.tokenizer
    return pooling, tokenizer, config.find_length(loaded.model.config.max_position_embeddings)


def read_sets(task: LabelTask, files: TaskFiles, skipped: Counter[str] | None) -> list[list[Row]]:
    """Return training, validation and perhaps test examples; raise CorpusError for too few."""
    paths = [path for path in (files.train, files.valid, files.test) if path is not None]
    sets = [task.read(path, files, skipped) for path in paths]
    for rows, path in zip(sets, paths, strict=True):
        if not rows:
            raise CorpusError(f"{path} holds no examples.")
    train, *others = sets
    if files.valid is not None:
        return [train, *others]
    if files.first_valid is not None:
        return [*split_after(train, *files.first_valid), *others]
    names = [task.list_labels(row) for row in train]
    kept, held_out = split_examples(train, names, files.valid_share)
    if kept and held_out:
        return [kept, held_out, *others]
    flat = [name for each in names for name in each]
    if 2 < len(train) <= len(flat) == len(set(flat)):
        raise CorpusError(
            f"{files.train}: each of its {len(train):,} examples has a different label. Check "
            "--columns label=…, or use --task regression for numbers."
        )
    raise CorpusError(f"{files.train} {_explain_split(train)}, or give --valid.")


def _explain_split(rows: Sequence[Row]) -> str:
    """Return why examples cannot be split into training and validation, and a remedy."""
    first = {row.group_texts[0] for row in rows}
    if len(rows) > 2 and len(first) == 1:
        shown = show_value(next(iter(first)).replace("\x1f", " "))
        return f"has {len(rows):,} examples of one text, {shown}. Check --columns, add others"
    rule = "holds too few examples for training and validation"
    return f"{rule}. Add some, give another --valid-share"
