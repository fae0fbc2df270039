"""The suite ``labels``: the answers of a fine-tuned model to new labeled examples.

Examples are read and scored as by ``maskwright finetune``. The baseline of texts is a constant: the
most frequent label of the same examples, or the mean of their numbers.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.column_roles import Column
from maskwright.errors import CorpusError
from maskwright.evaluation.intervals import (
    NUM_RESAMPLES,
    RESAMPLING_SEED,
    describe_bootstrap,
    percentile_interval,
)
from maskwright.evaluation.suites import Request, Suite, describe_files
from maskwright.finetuning.baselines import predict_constant
from maskwright.finetuning.beside import Beside
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.metrics import Metric, Scores, compute_metric, describe_constant
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.predict import has_columns
from maskwright.finetuning.task import (
    Labels,
    LabelTask,
    choose_metrics,
    find_label_task,
    load_label_task,
)
from maskwright.finetuning.text_tasks import Ranking, TextTask
from maskwright.inference.text_model import TextModel
from maskwright.model.classifier import Classifier
from maskwright.model_folder.classifier_folder import LoadedClassifier, open_classifier
from maskwright.model_folder.folder import Loaded, find_model
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.runs.run_directory import read_asked
from maskwright.tokenizer.lost import check_known


class TunedModel(TextModel[Classifier]):
    """A model of ``maskwright finetune``; its run has the columns and metrics of training."""

    def __init__(self, folder: Path, device: str | None) -> None:
        super().__init__(folder, device)
        asked = read_asked(folder.parent)
        self.trained_on: Mapping[str, Any] = asked.get("files", {})
        self.metric: Metric | None = asked.get("finetune", {}).get("metric")
        name, level = self.trained_on.get("task"), self.loaded.model.head_config.level
        found = load_label_task(name) if name else find_label_task(level, self.loaded.problem)
        self.task: LabelTask = found
        self.beside = Beside.read(find_model(folder), self.device)

    @staticmethod
    def _open(folder: Path | str) -> Loaded[Any]:
        return open_classifier(folder)

    def _use(self, loaded: Loaded[Classifier]) -> None:
        super()._use(loaded)
        self.loaded = cast(LoadedClassifier, loaded)

    def read(self, path: Path, labels: Labels) -> Examples:
        """Return the examples of a file, with their targets.

        Raise CorpusError if the file cannot be read, holds no examples, has a label that the model
        does not know, or has single texts for a model of pairs.
        """
        header = self.trained_on.get("has_header")
        columns: dict[str, Column] = {**self.trained_on.get("columns", {})}
        if isinstance(self.task, TextTask):
            if not has_columns(path, columns):
                columns, header = self.task.find_columns(path, {}), None
            if self.loaded.num_texts == 1:
                columns.pop("sentence2", None)
            elif self.loaded.num_texts == 2 and "sentence2" not in columns:
                rule = "has one text per example, but the model was trained on pairs"
                raise CorpusError(f"{path} {rule}. Name the column of the second one sentence2.")
        files = TaskFiles(task=self.task.name, train=Path(), columns=columns, has_header=header)
        rows = self.task.read(
            path, files, Counter() if self.trained_on.get("skips_short") else None
        )
        if not rows:
            raise CorpusError(f"{path} holds no examples.")
        check_known(self.tokenizer, (text for row in rows for text in row.texts), str(path))
        return self.task.encode(rows, labels, self.tokenizer, self.loaded.max_length)


def _score_labels(request: Request) -> SuiteResult:
    model, path = cast(TunedModel, request.model), request.need_file("labels")
    task, loaded = model.task, model.loaded
    labels = Labels(loaded.labels, num_unanswerable=int(loaded.may_be_empty))
    examples = model.read(path, labels)
    metrics = choose_metrics(task, labels, model.metric, model.trained_on.get("metrics", ()))[1]
    logits = compute_logits(model.model, examples, model.tokenizer.pad_id, "fp32")
    if model.beside is not None:
        logits = [*model.beside(np.stack(logits), [row.texts for row in examples.rows])]
    answers = task.collect(examples, logits)
    found = task.score(labels, metrics, examples, answers)
    settings: dict[str, object] = {"task": task.name, "num_cut": examples.num_cut}
    baseline: Scores = {}
    intervals: dict[str, tuple[float, float] | None] = {}
    num_scored = len(examples.rows)
    if isinstance(task, Ranking):
        num_scored = len({row.texts[0] for row in examples.rows})
    elif isinstance(task, TextTask):
        targets = np.asarray(examples.targets)
        constant = predict_constant(task.problem, targets, len(targets))
        baseline = task.score(labels, metrics, examples, constant)
        intervals = {name: resample_metric(name, targets, answers) for name in metrics}
        settings["baseline"] = describe_constant(task.name)
        settings["interval"] = describe_bootstrap("examples")
    scores: list[Score] = []
    for name, value in found.items():
        low, high = intervals.get(name) or (None, None)
        scores.append(Score(f"labels/{name}", value, low, high, num_scored, baseline.get(name)))
    data = describe_files(path, [path], len(examples.rows))
    return SuiteResult("labels", data, settings | {"fast": False}, tuple(scores))


def resample_metric(
    name: str, targets: NDArray[Any], answers: NDArray[Any]
) -> tuple[float, float] | None:
    """Return the bootstrap interval of a metric over examples."""
    generator, count = np.random.default_rng(RESAMPLING_SEED), len(targets)
    draws = (generator.integers(0, count, count) for _ in range(NUM_RESAMPLES))
    return percentile_interval(
        np.array([compute_metric(name, targets[drawn], answers[drawn]) for drawn in draws])
    )


LABELS = Suite(
    name="labels",
    needs="labels",
    check=lambda request: request.need_file("labels"),
    score=_score_labels,
    headlines=tuple(f"labels/{name}" for name in ("span_recall", *get_args(Metric))),
)
