"""The suite ``glue`` of ``maskwright evaluate``: fine-tune on every GLUE task of a folder.

A tenth of the training examples is held out to select the weights; GLUE's validation examples are
scored once, at the end.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from maskwright.console import Pulse
from maskwright.errors import InputError
from maskwright.files import write_json
from maskwright.finetuning.config import GLUE_TASKS, FinetuneConfig, GlueTask, TaskFiles
from maskwright.finetuning.fit import collect_results, train_seeds
from maskwright.finetuning.metrics import Results
from maskwright.finetuning.run import describe_skipped
from maskwright.finetuning.task import Tell, read_task
from maskwright.model_folder.classifier_folder import open_pretrained
from maskwright.train.device import choose_device, describe_computation

_FAST_EPOCHS = 1.0


class GlueResults(Results):
    """The results of a task, as in ``results.json``, and its training time."""

    minutes: float


def evaluate_glue(
    folder: Path,
    data: list[str],
    device: str | None,
    out: Path | None,
    *,
    is_fast: bool,
    tell: Tell,
) -> dict[str, GlueResults]:
    """Fine-tune on every GLUE task of a folder; return the results of each by name."""
    if len(data) != 1 or not Path(data[0]).is_dir():
        raise InputError("the suite glue needs --data DIR, a folder with CoLA, SST-2, RTE, …")
    config = FinetuneConfig(device=device or "auto")
    config = replace(config, epochs=_FAST_EPOCHS) if is_fast else config
    tasks = list(find_tasks(Path(data[0])))
    if not tasks:
        known = ", ".join(task.folder for task in GLUE_TASKS.values())
        raise InputError(f"--data = {data[0]} holds no GLUE task. It needs one of {known}")
    for name, missing in find_gaps(Path(data[0])):
        tell(f"{name} is skipped: it lacks {' and '.join(missing)}")
    results: dict[str, GlueResults] = {}
    for name, train, valid in tasks:
        files = GLUE_TASKS[name].make_files(train, {}, None, test=valid, skips_short=True)
        results[name] = _run_task(GLUE_TASKS[name], files, folder, config, tell)
        if out is not None:  # written after each task, so that a later error loses nothing
            write_json(out, results)
    return results


def _run_task(
    task: GlueTask, files: TaskFiles, folder: Path, config: FinetuneConfig, tell: Tell
) -> GlueResults:
    device = choose_device(config.device, field="device")
    tell(f"{task.folder}: reading examples, scoring baselines")
    loaded = open_pretrained(folder)
    data = read_task(files, loaded, config)
    budget = config.resolve(len(data.train), loaded.model.config.hidden_size)
    computation = describe_computation(config.precision, device)
    tell(f"  {len(data.train):,} examples, {budget.describe_budget(computation)}")
    for line in describe_skipped(data):
        tell(f"  {line}")
    began = time.perf_counter()
    seeds = train_seeds(data, loaded.model, config, device, pulse=Pulse(tell))
    minutes = (time.perf_counter() - began) / 60
    return {**collect_results(data, seeds, computation), "minutes": minutes}


def find_tasks(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield name, training file and validation file of each task in the subfolders of `folder`."""
    for name, task in GLUE_TASKS.items():
        own = folder / task.folder
        for layout in task.layouts:
            if not layout.list_missing(own):
                yield name, own / layout.train, own / layout.valid
                break


def find_gaps(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each incomplete task folder, and the files that the closest layout lacks."""
    for task in GLUE_TASKS.values():
        own = folder / task.folder
        missing = min((layout.list_missing(own) for layout in task.layouts), key=len)
        if own.is_dir() and missing:
            yield task.folder, missing
