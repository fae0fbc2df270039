"""Fine-tuning a model of ours on real tasks, beside baselines and a random encoder.

    MASKWRIGHT_DATA=… python -m benchmarks.finetuning runs/NAME --about WORDS --runs runs/tasks

SST-2, CoLA, RTE and the STS benchmark in the layouts of GLUE, and the entities of wikigold. All by
`maskwright.finetune` with its defaults, but for the seeds. A tenth of the training examples chooses
the weights of a run; what is reported is looked at once: the validation examples of GLUE, the last
tenth of wikigold. `RUNS/TASK-MODEL.json` is written when a task has ended, and not worked out
again; the result file holds all of them.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import find_corpus, write_result
from maskwright.evaluation.run import hash_model
from maskwright.finetuning.config import GLUE, FinetuneConfig
from maskwright.finetuning.fit import train_seeds
from maskwright.finetuning.glue import find_tasks, make_files
from maskwright.finetuning.results import add_control, collect_results
from maskwright.finetuning.task import TaskFiles, read_task
from maskwright.model_folder.folder import open_encoder
from maskwright.runs.find_model import find_model_folder


def list_tasks(scratch: Path) -> dict[str, TaskFiles]:
    """The tasks by name.

    Args:
        scratch: for files that are made of others.
    """
    tasks: dict[str, TaskFiles] = {}
    for name, train, dev in find_tasks(find_corpus("glue")):
        tasks[name] = make_files(GLUE[name], train, dev)
    train, test = cut_tagged(find_corpus("ner/wikigold") / "wikigold.conll.txt", scratch)
    return {**tasks, "wikigold": TaskFiles(task="tokens", train=train, test=test)}


def cut_tagged(path: Path, scratch: Path) -> tuple[Path, Path]:
    """Files of the first nine tenths of a CoNLL file's sentences, and of the others.

    Sentences that stand together are of one article, so that a test of any would know its names.
    """
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    place = len(blocks) * 9 // 10
    parts = scratch / "train.conll", scratch / "test.conll"
    for part, chosen in zip(parts, (blocks[:place], blocks[place:]), strict=True):
        part.write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
    return parts


def run_one(files: TaskFiles, folder: Path, seeds: int) -> dict[str, Any]:
    """Our model and a random one of its shape on one task."""
    loaded = open_encoder(folder)
    data = read_task(files, loaded, FinetuneConfig())
    config = FinetuneConfig(seeds=seeds).resolve(len(data.train), loaded.model.config.hidden_size)
    began = time.perf_counter()
    device = torch.device("cpu")
    ours = train_seeds(data, loaded.model, config, device, print)
    minutes = (time.perf_counter() - began) / 60 / config.seeds
    control = train_seeds(data, loaded.model, config, device, print, from_scratch=True)
    results = collect_results(data, ours)
    add_control(results, control)
    found: dict[str, Any] = {**results}
    for run in (*found["runs"], *found["random_encoder_runs"]):
        del run["history"]
    conditions = {
        "epochs": config.epochs,
        "learning_rate": config.learning_rate,
        "threads": torch.get_num_threads(),
        "minutes_a_seed": round(minutes, 2),
    }
    return {**found, **conditions}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run of pretraining, or a model folder")
    parser.add_argument("--about", required=True, help="what the model is, in words")
    parser.add_argument("--runs", type=Path, required=True, help="keeps what has ended")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", help="[all]")
    arguments = parser.parse_args()
    folder = find_model_folder(arguments.run)
    model = hash_model(folder)[:12]
    arguments.runs.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, files in list_tasks(Path(scratch)).items():
            kept = arguments.runs / f"{name}-{model}.json"
            if (arguments.tasks is None or name in arguments.tasks) and not kept.exists():
                kept.write_text(json.dumps(run_one(files, folder, arguments.seeds)))
            if kept.exists():
                found[name] = json.loads(kept.read_text())
    write_result("finetuning", {"about": arguments.about, "model": model, "tasks": found})


if __name__ == "__main__":
    main()
