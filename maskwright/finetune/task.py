"""Fine-tuning from files to scores: what ``maskwright finetune`` does, without its output.

Every seed is a run of its own; the classifier that is kept is that of the run with the best score
on the validation examples, and the scores that are reported are the means over the runs.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch

from maskwright.artifact.folder import Loaded
from maskwright.errors import CorpusError
from maskwright.finetune.baselines import (
    score_bag_of_words,
    score_majority,
    score_outside,
    score_words,
)
from maskwright.finetune.config import FinetuneConfig
from maskwright.finetune.conll import read_conll
from maskwright.finetune.examples import encode_rows, encode_sentences, read_texts
from maskwright.finetune.files import TaskFiles
from maskwright.finetune.fit import Fitted, Fitting, Material
from maskwright.finetune.labels import Labels
from maskwright.finetune.loop import Report
from maskwright.finetune.metrics import Metric, check_metric
from maskwright.finetune.network import Pretrained, build_classifier
from maskwright.finetune.scoring import is_better, list_metrics
from maskwright.finetune.spans import marks_entities
from maskwright.finetune.split import Row, split_examples
from maskwright.finetune.tables import LabelledRow, read_columns
from maskwright.model.classifier import Classifier
from maskwright.model.init import initialise
from maskwright.pulse import Pulse

TAG_METRIC = "span_f1"


@dataclass(frozen=True)
class Problem:
    """A task as examples of one model, and what needs no model to answer it.

    Attributes:
        skipped: rows with too few columns, by file.
    """

    material: Material
    baselines: dict[str, dict[str, float]]
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])


class Summary(NamedTuple):
    """A score over all runs; a single one has no deviation."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Outcome:
    """All runs, and the classifier of the best of them."""

    model: Classifier
    runs: list[Fitted]
    deciding: str

    def summarise(self) -> dict[str, Summary]:
        """Mean and deviation over the runs, by metric."""
        names = self.runs[0].scores
        values = {name: [run.scores.get(name, 0.0) for run in self.runs] for name in names}
        return {
            name: Summary(mean(found), stdev(found) if len(found) > 1 else None)
            for name, found in values.items()
        }


def read_task(files: TaskFiles, loaded: Loaded[Any], config: FinetuneConfig) -> Problem:
    """Examples, labels and baselines.

    Raises:
        CorpusError: whatever is wrong with the files.
    """
    longest = loaded.model.config.max_position_embeddings
    max_length = min(config.max_length or longest, longest)
    if files.task == "tokens":
        return _read_tags(files, loaded, max_length, config.metric)

    skipped = Counter[str]() if files.skips_short else None

    def read(path: Path) -> list[LabelledRow]:
        return list(read_columns(path, files.columns, files.has_header, skipped))

    train, valid = _read_both(files, read)
    labels = Labels.find(files.task, train)
    learned, scored = (
        encode_rows(rows, labels, loaded.tokenizer, max_length) for rows in (train, valid)
    )
    deciding = config.metric or list_metrics(files.task, files.metrics)[0]
    check_metric(deciding, files.task, len(labels.names))
    metrics = list_metrics(files.task, (*files.metrics, deciding))
    material = Material(labels, learned, scored, metrics, deciding, loaded.tokenizer.pad_id)
    known, new = (
        ([read_texts(row) for row in rows], np.asarray(examples.targets))
        for rows, examples in ((train, learned), (valid, scored))
    )
    baselines = {
        "majority": score_majority(labels, metrics, known[1], new[1]),
        "bag of words": score_bag_of_words(labels, metrics, known, new),
    }
    return Problem(material, baselines, dict(skipped or {}))


def _read_tags(
    files: TaskFiles, loaded: Loaded[Any], max_length: int, metric: Metric | None
) -> Problem:
    columns = {role: int(place) for role, place in files.columns.items()}
    train, valid = _read_both(files, lambda path: list(read_conll(path, **columns)))
    labels = Labels.of_tags(sentence.tags for sentence in train)
    learned, scored = (
        encode_sentences(each, labels, loaded.tokenizer, max_length) for each in (train, valid)
    )
    deciding = TAG_METRIC if marks_entities(labels.names) else "accuracy"
    if metric is not None:
        check_metric(metric, files.task, len(labels.names))
        deciding = metric
    material = Material(labels, learned, scored, (), deciding, loaded.tokenizer.pad_id)
    baselines = {
        "majority": score_outside(labels, valid),
        "bag of words": score_words(labels, train, valid),
    }
    return Problem(material, baselines)


def _read_both(files: TaskFiles, read: Callable[[Path], list[Row]]) -> tuple[list[Row], list[Row]]:
    train = read(files.train)
    if files.valid is not None:
        valid = read(files.valid)
    else:
        train, valid = split_examples(train, files.task, files.valid_share)
    for rows, path in ((train, files.train), (valid, files.valid or files.train)):
        if not rows:
            raise CorpusError(f"{path} holds too few examples to train and to score on.")
    return train, valid


def run_task(
    problem: Problem,
    pretrained: Pretrained,
    config: FinetuneConfig,
    device: torch.device,
    report: Report,
    *,
    from_scratch: bool = False,
    pulse: Pulse | None = None,
) -> Outcome:
    """All seeds.

    Args:
        report: takes the scores of each moment at which a model is scored.
        from_scratch: begin with random weights: what the same shape learns without pretraining.
        pulse: is told of every step.

    Raises:
        TrainingError: a loss that is not finite.
    """
    material = problem.material
    level = "token" if material.labels.task == "tokens" else "text"
    runs: list[Fitted] = []
    best: tuple[dict[str, float], Classifier] | None = None
    for seed in range(config.first_seed, config.first_seed + config.seeds):
        model = build_classifier(pretrained, config, level, len(material.labels.names), seed)
        if from_scratch:
            initialise(model, seed)
        runs.append(Fitting(model.to(device), material, config, seed, report, pulse).run())
        scores = runs[-1].scores
        if best is None or is_better(material.deciding, scores, best[0]):
            best = scores, model
    assert best is not None
    return Outcome(best[1].cpu(), runs, material.deciding)
