"""Fine-tune a model on real tasks, and compare it with baselines, with a random encoder if asked.

    MASKWRIGHT_DATA=… python -m benchmarks finetuning runs/NAME --about WORDS --runs runs/tasks

The tasks are SST-2, CoLA, RTE and the STS benchmark in the layouts of GLUE, the entities of
wikigold, and two tasks for transcripts of speech, made from held-out Wikipedia articles: to restore
punctuation and capital letters. All use `maskwright.finetune` with its defaults except for the
seeds. A tenth of the training examples chooses the weights of a run; the test examples are used
once: the validation examples of GLUE, the last tenth of the others. ``RUNS/TASK-MODEL.json`` is
written when a task has ended, and a second call reuses it; the result file contains all of them.
With ``--rows`` tasks have so many examples, drawn once; with ``--patience`` it is compared.
"""

import argparse
import gzip
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import find_corpus, recall, write_result
from maskwright.corpus.table_files import peek_rows
from maskwright.corpus.text_inputs import has_conll_name
from maskwright.evaluation.run import hash_model
from maskwright.finetuning.config import GLUE_TASKS, FinetuneConfig, TaskFiles
from maskwright.finetuning.fit import add_control, collect_results, train_seeds
from maskwright.finetuning.glue import find_tasks
from maskwright.finetuning.task import read_task
from maskwright.model_folder.folder import open_encoder
from maskwright.runs.find_model import find_model_folder
from maskwright.train.device import describe_computation

_MIN_WORDS = 30  # of a paragraph: headings and lists have fewer
_NUM_PARAGRAPHS = 600


def list_tasks(scratch: Path) -> dict[str, TaskFiles]:
    """Return the tasks by name; `scratch` takes files that are made of others."""
    tasks: dict[str, TaskFiles] = {}
    for name, train, dev in find_tasks(find_corpus("glue")):
        tasks[name] = GLUE_TASKS[name].make_files(train, {}, None, test=dev)
    wikigold = find_corpus("ner/wikigold") / "wikigold.conll.txt"
    tagged = {"wikigold": wikigold.read_text(encoding="utf-8").split("\n\n")}
    with gzip.open(find_corpus("wiki_en/wiki_en.valid.txt.gz"), "rt", encoding="utf-8") as lines:
        words = (line.split() for line in lines)
        paragraphs = list(islice((w for w in words if len(w) >= _MIN_WORDS), _NUM_PARAGRAPHS))
    for tag in (tag_punctuation, tag_capitals):
        name = tag.__name__.removeprefix("tag_")
        tagged[name] = ["\n".join(map(tag, words)) for words in paragraphs]
    for name, blocks in tagged.items():
        train, test = cut_tagged(blocks, scratch / name)
        tasks[name] = TaskFiles(task="tokens", train=train, test=test)
    return tasks


def tag_punctuation(word: str) -> str:
    """Return a lowercase word without its comma or stop, which is the tag."""
    bare = word.rstrip(".,") or word
    mark = {",": "B-COMMA", ".": "B-STOP"}.get(word[len(bare) : len(bare) + 1], "O")
    return f"{bare.lower()} {mark}"


def tag_capitals(word: str) -> str:
    """Return a lowercase word, tagged if its first letter was a capital."""
    return f"{word.lower()} {'B-CAPITAL' if word[0].isupper() else 'O'}"


def cut_tagged(blocks: Sequence[str], scratch: Path) -> tuple[Path, Path]:
    """Write nine tenths of CoNLL sentences, the first ones, and the others; return both files.

    Neighbors are of one article, so that a test of random sentences would know its names.
    """
    cut = len(blocks) * 9 // 10
    scratch.mkdir()
    parts = scratch / "train.conll", scratch / "test.conll"
    for part, chosen in zip(parts, (blocks[:cut], blocks[cut:]), strict=True):
        part.write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
    return parts


def shorten(files: TaskFiles, num_rows: int, scratch: Path) -> TaskFiles:
    """Return a task with `num_rows` of its training examples; a header stays."""
    separator = "\n\n" if has_conll_name(files.train) else "\n"
    examples = files.train.read_text(encoding="utf-8").strip().split(separator)
    names, _ = peek_rows(files.train) if separator == "\n" else ([], ())
    kept = [*examples[:1]] if names else []
    kept += random.Random(0).sample(examples[len(kept) :], num_rows)
    path = scratch / f"{num_rows}-{files.train.name}"
    path.write_text(separator.join(kept) + "\n", encoding="utf-8")
    return replace(files, train=path)


def run_one(
    files: TaskFiles, folder: Path, asked: FinetuneConfig, has_control: bool
) -> dict[str, Any]:
    """Fine-tune our model, and with a control a random one of its shape, on one task."""
    loaded = open_encoder(folder)
    data = read_task(files, loaded, asked)
    config = asked.resolve(len(data.train), loaded.model.config.hidden_size)
    began = time.perf_counter()
    device = torch.device("cpu")
    ours = train_seeds(data, loaded.model, config, device, print)
    minutes = (time.perf_counter() - began) / 60 / config.seeds
    results = collect_results(data, ours, describe_computation(config.precision, device))
    if has_control:
        add_control(
            results, train_seeds(data, loaded.model, config, device, print, from_scratch=True)
        )
    found: dict[str, Any] = {**results}
    for run in (*found["runs"], *found.get("random_encoder_runs", ())):
        del run["history"]
    conditions = {"epochs": config.epochs, "learning_rate": config.learning_rate}
    conditions["patience"] = config.patience
    measured = {"threads": torch.get_num_threads(), "minutes_a_seed": round(minutes, 2)}
    return {**found, **conditions, **measured}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run of pretraining, or a model folder")
    parser.add_argument("--about", required=True, help="description of the model")
    parser.add_argument("--runs", type=Path, required=True, help="folder for finished tasks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", help="tasks [all]")
    parser.add_argument("--rows", type=int, nargs="+", help="training examples [all]")
    parser.add_argument("--patience", type=int, nargs="+", help="patience [the default]")
    parser.add_argument("--control", action="store_true", help="fine-tune a random encoder, too")


def main(arguments: argparse.Namespace) -> None:
    folder = find_model_folder(arguments.run)
    model = hash_model(folder)[:12]
    arguments.runs.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    variants = [*product(arguments.rows or [None], arguments.patience or [None])]
    with tempfile.TemporaryDirectory() as scratch:
        tasks = list_tasks(Path(scratch))
        for (task, files), (rows, patience) in product(tasks.items(), variants):
            parts = (
                task,
                rows and f"{rows}-rows",
                None if patience is None else f"stop-{patience}",
            )
            name = "-".join(filter(None, parts))
            kept = arguments.runs / f"{name}-{model}.json"
            if arguments.tasks is None or task in arguments.tasks or kept.exists():
                chosen = shorten(files, rows, Path(scratch)) if rows else files
                asked = FinetuneConfig(seeds=arguments.seeds)
                asked = asked if patience is None else replace(asked, patience=patience)
                found[name] = recall(
                    kept, partial(run_one, chosen, folder, asked, arguments.control)
                )
    result = "finetuning-small" if arguments.rows else "finetuning"
    write_result(result, {"about": arguments.about, "model": model, "tasks": found})
