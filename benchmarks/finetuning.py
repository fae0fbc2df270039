"""Fine-tuning a model of ours on real tasks, beside baselines and a random encoder.

    MASKWRIGHT_DATA=… python -m benchmarks.finetuning runs/NAME --about WORDS --runs runs/tasks

SST-2, CoLA, RTE and the STS benchmark in the layouts of GLUE, and the entities of wikigold, of
which a tenth is held out. All by `maskwright.finetune` with its defaults, but for the seeds.
`RUNS/TASK.json` is written when a task has ended, and not worked out again; the result file holds
all of them.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import find_corpus, write_result
from maskwright.artifact.folder import open_encoder
from maskwright.commands.finetuning import summarise
from maskwright.commands.model_folder import find_model_folder
from maskwright.finetune.config import FinetuneConfig
from maskwright.finetune.files import TaskFiles
from maskwright.finetune.presets import GLUE, find_tasks
from maskwright.finetune.task import read_task, run_task


def list_tasks() -> dict[str, TaskFiles]:
    """The tasks by name."""
    tasks: dict[str, TaskFiles] = {}
    for name, train, valid in find_tasks(find_corpus("glue")):
        preset, layout = GLUE[name], GLUE[name].find_layout(train)
        tasks[name] = TaskFiles(
            task=preset.task,
            train=train,
            valid=valid,
            columns=layout.columns,
            has_header=layout.has_header,
            metrics=preset.metrics,
        )
    [wikigold] = sorted(find_corpus("ner/wikigold").glob("*.txt"))
    return {**tasks, "wikigold": TaskFiles(task="tokens", train=wikigold)}


def run_one(files: TaskFiles, folder: Path, seeds: int) -> dict[str, Any]:
    """Our model and a random one of its shape on one task."""
    loaded = open_encoder(folder)
    problem = read_task(files, loaded, FinetuneConfig())
    config = FinetuneConfig(seeds=seeds).settle(
        len(problem.material.train), loaded.model.config.hidden_size
    )
    began = time.perf_counter()
    device = torch.device("cpu")
    ours = run_task(problem, loaded.model, config, device, print)
    minutes = (time.perf_counter() - began) / 60 / config.seeds
    control = run_task(problem, loaded.model, config, device, print, from_scratch=True)
    found, random = summarise(problem, ours), summarise(problem, control)
    for run in (*found["runs"], *random["runs"]):
        del run["history"]
    found |= {"random_encoder": random["scores"], "random_encoder_runs": random["runs"]}
    budget = {"epochs": config.epochs, "learning_rate": config.learning_rate}
    return {**found, **budget, "minutes_a_seed": round(minutes, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run of pretraining, or a model folder")
    parser.add_argument("--about", required=True, help="what the model is, in words")
    parser.add_argument("--runs", type=Path, required=True, help="keeps what has ended")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", help="[all]")
    arguments = parser.parse_args()
    folder = find_model_folder(arguments.run)
    for name, files in list_tasks().items():
        kept = arguments.runs / f"{name}.json"
        if (arguments.tasks is None or name in arguments.tasks) and not kept.exists():
            found = run_one(files, folder, arguments.seeds)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
    tasks = {path.stem: json.loads(path.read_text()) for path in arguments.runs.glob("*.json")}
    ordered = {name: tasks[name] for name in list_tasks() if name in tasks}
    write_result("finetuning", {"about": arguments.about, "tasks": ordered})


if __name__ == "__main__":
    main()
