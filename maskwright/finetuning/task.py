"""Fine-tuning from files to scores: what ``maskwright finetune`` does, without its output.

Every seed is a run of its own; the classifier that is kept is that of the run with the best score
on the validation examples, and the scores that are reported are the means over the runs. Where
there is a test, its examples are looked at once, after all of that.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch

from maskwright.errors import CorpusError
from maskwright.finetuning.answers import Answers, Rows, answer_examples
from maskwright.finetuning.baselines import score_baselines, score_tag_baselines
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.conll import TaggedSentence, read_conll
from maskwright.finetuning.examples import Examples, encode_rows, encode_sentences, read_texts
from maskwright.finetuning.files import TaskFiles
from maskwright.finetuning.fit import Fitted, Fitting, Material
from maskwright.finetuning.labels import Labels, read_names
from maskwright.finetuning.loop import Report
from maskwright.finetuning.metrics import Metric, check_metric
from maskwright.finetuning.network import Pretrained, build_classifier
from maskwright.finetuning.scoring import list_metrics
from maskwright.finetuning.seeds import FinishedSeeds, find_best
from maskwright.finetuning.spans import marks_entities
from maskwright.finetuning.split import Row, split_examples
from maskwright.finetuning.tables import LabelledRow, read_columns
from maskwright.model.classifier import Classifier
from maskwright.model.init import initialize
from maskwright.model_folder.folder import Loaded
from maskwright.progress import Pulse

TAG_METRIC = "span_f1"


@dataclass(frozen=True)
class Problem:
    """A task as examples of one model, and what needs no model to answer it.

    Attributes:
        baselines: their scores on the validation examples.
        test_baselines: those on the test examples; none without a test.
        skipped: rows with too few columns, by file.
        rows: the validation examples as they were read, and the test examples if there are any.
    """

    material: Material
    baselines: dict[str, dict[str, float]]
    test_baselines: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    rows: Sequence[Rows] = ()


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

    @property
    def saved_seed(self) -> int:
        """The seed of `model`."""
        return self.runs[find_best(self.runs, self.deciding)].seed

    def summarise(self) -> dict[str, Summary]:
        """Mean and deviation over the runs, by metric, on the validation examples."""
        return _summarise([run.scores for run in self.runs])

    def summarise_test(self) -> dict[str, Summary]:
        """The same on the test examples; nothing without a test."""
        return _summarise([run.test_scores for run in self.runs])


def _summarise(runs: Sequence[Mapping[str, float]]) -> dict[str, Summary]:
    values = {name: [run.get(name, 0.0) for run in runs] for name in runs[0]}
    return {
        name: Summary(mean(found), stdev(found) if len(found) > 1 else None)
        for name, found in values.items()
    }


def read_task(files: TaskFiles, loaded: Loaded[Any], config: FinetuneConfig) -> Problem:
    """Examples, labels and baselines.

    Raises:
        ConfigError: a length that the model does not take, or a measure that the task has not.
        CorpusError: whatever is wrong with the files.
    """
    max_length = config.find_length(loaded.model.config.max_position_embeddings)
    if files.task == "tokens":
        return _read_tags(files, loaded, max_length, config.metric)

    skipped = Counter[str]() if files.skips_short else None

    def read(path: Path) -> list[LabelledRow]:
        return list(read_columns(path, files.columns, files.has_header, skipped))

    sets = _read_sets(files, read)
    labels = Labels.find(files.task, sets[0])
    encoded = [encode_rows(rows, labels, loaded.tokenizer, max_length) for rows in sets]
    deciding = config.metric or list_metrics(files.task, files.metrics)[0]
    check_metric(deciding, files.task, len(labels.names))
    metrics = list_metrics(files.task, (*files.metrics, deciding))
    known, *new = (
        ([read_texts(row) for row in rows], np.asarray(examples.targets))
        for rows, examples in zip(sets, encoded, strict=True)
    )
    material = _gather(labels, encoded, metrics, deciding, loaded)
    baselines, *of_test = score_baselines(labels, metrics, known, new)
    return Problem(
        material, baselines, of_test[0] if of_test else {}, dict(skipped or {}), sets[1:]
    )


def _read_tags(
    files: TaskFiles, loaded: Loaded[Any], max_length: int, metric: Metric | None
) -> Problem:
    columns = {role: int(place) for role, place in files.columns.items()}
    sets = _read_sets(files, lambda path: list(read_conll(path, **columns)))
    labels = Labels.of_tags(sentence.tags for sentence in sets[0])
    encoded = [encode_sentences(each, labels, loaded.tokenizer, max_length) for each in sets]
    deciding = TAG_METRIC if marks_entities(labels.names) else "accuracy"
    if metric is not None:
        check_metric(metric, files.task, len(labels.names))
        deciding = metric
    material = _gather(labels, encoded, (), deciding, loaded)
    baselines, *of_test = score_tag_baselines(labels, sets[0], sets[1:])
    return Problem(material, baselines, of_test[0] if of_test else {}, rows=sets[1:])


def _gather(
    labels: Labels,
    encoded: Sequence[Examples],
    metrics: Sequence[Metric],
    deciding: str,
    loaded: Loaded[Any],
) -> Material:
    train, valid, *test = encoded
    return Material(
        labels, train, valid, metrics, deciding, loaded.tokenizer.pad_id, test[0] if test else None
    )


def _read_sets(files: TaskFiles, read: Callable[[Path], list[Row]]) -> list[list[Row]]:
    """The examples to train on, those to choose weights by, and those of a test if there is one."""
    paths = [path for path in (files.train, files.valid, files.test) if path is not None]
    sets = [read(path) for path in paths]
    for rows, path in zip(sets, paths, strict=True):
        if not rows:
            raise CorpusError(f"{path} holds no examples.")
    train, *others = sets
    if len(train) == 1 and isinstance(train[0], TaggedSentence):
        raise CorpusError(
            f"{files.train} holds one sentence, of {len(train[0].words):,} words: sentences are "
            "separated by blank lines. Add them."
        )
    if files.valid is None:
        kept, held_out = split_examples(train, files.task, files.valid_share)
        if not kept or not held_out:
            raise _explain_too_few(files, train)
        return [kept, held_out, *others]
    return sets


def _explain_too_few(files: TaskFiles, rows: Sequence[LabelledRow | TaggedSentence]) -> CorpusError:
    """Why examples cannot be divided into some to train on and some to score on."""
    names = [name for row in rows for name in read_names(files.task, row)]
    if 2 < len(rows) <= len(names) == len(set(names)):
        return CorpusError(
            f"{files.train}: each of its {len(rows):,} examples has a label of its own. Is "
            "--columns label=… the right column? (Numbers: --task regression.)"
        )
    return CorpusError(
        f"{files.train} holds too few examples to train and to score on. Add some, or give --valid "
        "or another --valid-share."
    )


def run_task(
    problem: Problem,
    pretrained: Pretrained,
    config: FinetuneConfig,
    device: torch.device,
    report: Report,
    *,
    from_scratch: bool = False,
    pulse: Pulse | None = None,
    finished: FinishedSeeds | None = None,
) -> Outcome:
    """Train all seeds but those that are finished already.

    Args:
        report: takes the scores of each moment at which a model is scored.
        from_scratch: begin with random weights: what the same shape learns without pretraining.
        pulse: is told of every step.
        finished: seeds of an earlier process; each one that ends is added.

    Raises:
        TrainingError: a loss that is not finite.
        CheckpointError: finished seeds that cannot be read or written.
    """
    material, finished = problem.material, finished or FinishedSeeds()
    level = "token" if material.labels.task == "tokens" else "text"

    def build(seed: int) -> Classifier:
        model = build_classifier(pretrained, config, level, len(material.labels.names), seed)
        if from_scratch:
            initialize(model, seed)
        return model.to(device)

    best: Classifier | None = None
    if finished.runs:
        best = build(config.first_seed)
        finished.fill(best)
    for seed in range(config.first_seed + len(finished.runs), config.first_seed + config.seeds):
        model = build(seed)
        run = Fitting(model, material, config, seed, report, pulse).run()
        if best is None or find_best([*finished.runs, run], material.deciding) == len(
            finished.runs
        ):
            best = model
        finished.keep(run, best)
    assert best is not None
    return Outcome(best.cpu(), list(finished.runs), material.deciding)


def answer_sets(
    problem: Problem,
    model: Classifier,
    config: FinetuneConfig,
    device: torch.device,
    pulse: Pulse | None = None,
) -> list[Answers]:
    """The answers of the saved model to the validation examples, and to the test examples."""
    material = problem.material
    sets = [one for one in (material.valid, material.test) if one is not None]
    model.to(device)
    answers = [
        answer_examples(
            model, examples, rows, material.labels, material.pad_id, config.precision, pulse
        )
        for examples, rows in zip(sets, problem.rows, strict=True)
    ]
    model.cpu()
    return answers
