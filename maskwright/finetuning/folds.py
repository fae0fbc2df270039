"""Cross-validation of small tables: every example is scored by a model that never saw it.

The model of a fold is trained on the other folds, of which a share selects its weights, as in any
run. So a score is of examples that chose nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from maskwright.errors import ConfigError
from maskwright.finetuning.examples import Row
from maskwright.finetuning.fit import train_seeds
from maskwright.finetuning.metrics import Baselines
from maskwright.finetuning.request import Request
from maskwright.finetuning.results import FoldResults, summarize
from maskwright.finetuning.split import cut_folds, split_examples
from maskwright.finetuning.task import TaskData, encode_sets, load_label_task
from maskwright.finetuning.teacher import ask_teacher
from maskwright.model_folder.folder import Loaded
from maskwright.progress import Pulse

_MODEL = "this model"


def cross_validate(
    request: Request, loaded: Loaded[Any], device: torch.device, pulse: Pulse
) -> FoldResults:
    """Train and score a model for each fold; return the mean scores, and those of the baselines.

    Raises:
        ConfigError: there are too few examples for the folds.
        CorpusError, TrainingError: as in a run.
    """
    config, scores = replace(request.config, seeds=1), list[Baselines]()
    num_scored = 0
    for number, data in enumerate(_list_folds(request, loaded), start=1):
        if request.teacher is not None:
            answers = ask_teacher(request.teacher, data, config, pulse)
            data = replace(data, soft_targets=answers)
        [run] = train_seeds(data, loaded.model, config, device, pulse=pulse).runs
        scores.append({**data.test_baselines, _MODEL: run.test_scores})
        num_scored += len(data.held_out[-1].rows)
        shown = "  ".join(f"{name} {each[data.deciding]:.4f}" for name, each in scores[-1].items())
        pulse.say(f"  fold {number} of {config.folds}  {data.deciding}  {shown}")
    # A kind of entity, such as span_f1/PER, may be missing in a fold.
    kept = [metric for metric in scores[0]["majority"] if "/" not in metric]
    means = {
        name: summarize([{metric: each[name][metric] for metric in kept} for each in scores])
        for name in scores[0]
    }
    model = means.pop(_MODEL)
    return {"count": config.folds, "examples": num_scored, "baselines": means, "scores": model}


def _list_folds(request: Request, loaded: Loaded[Any]) -> Iterator[TaskData]:
    """Yield the data of each fold, whose examples are the test examples."""
    files, count = request.files, request.config.folds
    task, skipped = load_label_task(files.task), Counter[str]() if files.skips_short else None
    rows = task.settle_labels(task.read(files.train, files, skipped))
    valid = None if files.valid is None else task.read(files.valid, files, skipped)
    labels = [task.list_labels(row) for row in rows]
    folds = cut_folds(rows, labels, count)
    if not all(folds):
        most = sum(map(bool, folds))
        rule = f"is too many: the {len(rows):,} examples of {files.train} fill {most} folds"
        raise ConfigError("folds", count, rule, "Give fewer folds, or more examples.")
    for fold in folds:
        rest = sorted({*range(len(rows))} - {*fold})
        train, chosen = [rows[n] for n in rest], valid
        if chosen is None:
            train, chosen = split_examples(train, [labels[n] for n in rest], files.valid_share)
        if not train or not chosen:
            raise ConfigError("folds", count, "leaves too few examples to train", "Give more.")
        sets: list[Sequence[Row]] = [train, chosen, [rows[n] for n in fold]]
        yield encode_sets(task, sets, files, loaded, request.config)
