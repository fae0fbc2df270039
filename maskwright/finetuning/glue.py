"""``maskwright evaluate --suite glue``: fine-tunes on every task that a folder holds.

The weights are chosen by a tenth of the training examples, which is held out; GLUE's validation
examples are looked at once, at the end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from maskwright.console import Console
from maskwright.errors import InputError
from maskwright.files import write_json
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.files import TaskFiles
from maskwright.finetuning.presets import GLUE, find_gaps, find_tasks
from maskwright.finetuning.run import describe_budget, describe_skipped, show_mean, summarise
from maskwright.finetuning.task import read_task, run_task
from maskwright.model_folder.classifier_folder import open_pretrained
from maskwright.progress import Pulse
from maskwright.train.device import choose_device

_FAST_EPOCHS = 1.0


def evaluate_glue(
    folder: Path,
    data: list[str],
    device: str | None,
    out: Path | None,
    *,
    is_fast: bool,
    tell: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Fine-tune on every task of a folder; return the results of each by name.

    Raises:
        InputError: no folder, or none of the tasks in it.
        CorpusError: whatever is wrong with a task's files.
    """
    if len(data) != 1 or not Path(data[0]).is_dir():
        raise InputError("the suite glue needs --data DIR, a folder with CoLA, SST-2, RTE, …")
    config = FinetuneConfig(device=device or "auto")
    config = replace(config, epochs=_FAST_EPOCHS) if is_fast else config
    tasks = list(find_tasks(Path(data[0])))
    if not tasks:
        known = ", ".join(task.folder for task in GLUE.values())
        raise InputError(f"--data = {data[0]} holds no task: of {known} none has both its files")
    for name, missing in find_gaps(Path(data[0])):
        tell(f"{name} is left out: it lacks {' and '.join(missing)}")
    results: dict[str, dict[str, Any]] = {}
    for name, found in run_tasks(folder, tasks, config, tell):
        results[name] = found
        if out is not None:  # what is done stays, whatever becomes of the next task
            write_json(out, results)
    return results


def run_tasks(
    folder: Path,
    tasks: Sequence[tuple[str, Path, Path]],
    config: FinetuneConfig,
    tell: Callable[[str], None],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each task's name and its results, as in ``results.json`` of ``maskwright finetune``."""
    device = choose_device(config.device, field="device")
    for name, train, dev in tasks:
        preset = GLUE[name]
        layout = preset.find_layout(train)
        files = TaskFiles(
            task=preset.task,
            train=train,
            test=dev,
            columns=layout.columns,
            has_header=layout.has_header,
            metrics=preset.metrics,
            skips_short=True,
        )
        tell(f"{preset.folder}: reading, scoring the baselines")
        loaded = open_pretrained(folder)
        problem = read_task(files, loaded, config)
        num_examples = len(problem.material.train)
        budget = config.settle(num_examples, loaded.model.config.hidden_size)
        tell(f"  {num_examples:,} examples, {describe_budget(budget)}")
        for line in describe_skipped(problem):
            tell(f"  {line}")
        began = time.perf_counter()
        outcome = run_task(
            problem, loaded.model, config, device, lambda record: None, pulse=Pulse(tell)
        )
        minutes = (time.perf_counter() - began) / 60
        yield name, {**summarise(problem, outcome), "minutes": minutes}


def show_tasks(results: dict[str, dict[str, Any]]) -> None:
    """A row for each task, with what decides there."""
    table = Table(box=None, pad_edge=False)
    for column in ("task", "metric"):
        table.add_column(column)
    for column in ("majority", "bag of words", "this model", "minutes"):
        table.add_column(column, justify="right")
    for name, found in results.items():
        metric = found["deciding_metric"]
        baselines = (f"{scores[metric]:.4f}" for scores in found["test"]["baselines"].values())
        score = show_mean(found["test"]["scores"][metric])
        table.add_row(GLUE[name].folder, metric, *baselines, score, f"{found['minutes']:.1f}")
    Console(highlight=False).print(table)
