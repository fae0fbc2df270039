"""A grid of settings of fine-tuning, for its defaults.

    MASKWRIGHT_DATA=… python -m benchmarks.finetuning_sweep runs/NAME --runs runs/sweep \\
        --tasks cola stsb wikigold --vary learning_rate 1e-4 3e-4 1e-3 --vary layer_decay 0.8 0.9

Every combination on every task, once for each seed, in its task's deciding metric, on the examples
that choose weights and not on those of the test.
`RUNS/finetuning.jsonl` gets a line for each that has ended; run again, it does the others. Printed
at the end, best mean over the tasks first.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.common import write_result
from benchmarks.finetuning import list_tasks
from benchmarks.sweep import list_points, name_point, read_lines
from maskwright.config import from_mapping
from maskwright.evaluation.run import hash_model
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.fit import train_seeds
from maskwright.finetuning.task import read_task
from maskwright.model_folder.folder import open_encoder
from maskwright.runs.find_model import find_model_folder


def rank(lines: list[dict[str, Any]]) -> list[tuple[float, str, dict[str, float]]]:
    """Mean over the tasks, settings and the mean over the seeds of each task, best first.

    Those of more tasks stand above, because means over different tasks do not compare.
    """
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        found[line["settings"]][line["task"]].append(line["score"])
    means = {
        settings: {task: mean(scores) for task, scores in tasks.items()}
        for settings, tasks in found.items()
    }
    rows = [(mean(tasks.values()), settings, tasks) for settings, tasks in means.items()]
    return sorted(rows, key=lambda row: (len(row[2]), row[0]), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run of pretraining, or a model folder")
    parser.add_argument("--runs", type=Path, required=True, help="keeps the lines")
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--vary", nargs="+", action="append", required=True)
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    lines_file = arguments.runs / "finetuning.jsonl"
    folder = find_model_folder(arguments.run)
    model, loaded = hash_model(folder)[:12], open_encoder(folder)
    with tempfile.TemporaryDirectory() as scratch:
        files = list_tasks(Path(scratch))
        problems = {n: read_task(files[n], loaded, FinetuneConfig()) for n in arguments.tasks}
    for name, problem in problems.items():
        for seed in arguments.seeds:
            for point in list_points(arguments.vary, None):
                line = {"model": model, "task": name, "settings": name_point(point), "seed": seed}
                if any(line.items() <= known.items() for known in read_lines(lines_file)):
                    continue
                values: dict[str, Any] = {field: json.loads(value) for field, value in point}
                config = from_mapping(FinetuneConfig, {**values, "first_seed": seed})
                outcome = train_seeds(problem, loaded.model, config, torch.device("cpu"), print)
                line["score"] = outcome.runs[0].scores[outcome.deciding]
                with lines_file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    lines = read_lines(lines_file)
    write_result("finetuning-sweep", {"runs": lines})
    for score, settings, tasks in rank(lines):
        print(f"{score:.4f}  {settings}  {json.dumps(tasks)}")


if __name__ == "__main__":
    main()
