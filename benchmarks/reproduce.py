"""Train the classic systems and ours, one after another, each for given minutes or tokens.

    MASKWRIGHT_DATA=… python -m benchmarks reproduce --runs runs/classics all
    python -m benchmarks reproduce --runs runs/classics --collect all

A second call keeps finished runs and resumes unfinished ones from their last checkpoint, but for
that of transformers' `Trainer` (`wiki-transformers`), which begins again. Each system's result
file, with its validation curve, is written when its run ends; --collect writes the files of all
runs without training.
"""

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.common import WIKIPEDIA, find_corpus, run_maskwright, write_result
from benchmarks.sentences_corpus import write_sentences
from benchmarks.time_to_quality import PeerRun
from maskwright.evaluation.run import evaluate
from maskwright.logs import read_metrics
from maskwright.pretraining.find_data import find_or_prepare
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import resolve
from maskwright.train.device import computes_in_bf16

Corpus = Literal["shakespeare", "wiki", "wiki-cased", "wiki-lines", "article", "sentence"]
ROWS_OF_128 = ("--data.max_seq_length", "128")
LONGER = ("--train.seq_length_schedule", "0:32,0.4:64,0.7:128")
# All on rows of one length, so that their losses can be compared.
ON_WIKI = ("--train.valid_seq_length", "128", "--train.num_validations", "15")
SENTENCES = ("article", "sentence")
# A tenth of what the notebook's author trained on.
TENTH = ("--train.max_tokens", "22500000")
_CURVE = ("step", "tokens", "seconds", "loss", "masked_accuracy")


@dataclass(frozen=True)
class System:
    """What to train on what, and for how long.

    Attributes:
        corpus: the unit of the split for 100,000 sentences of Wikipedia, or a text.
        minutes: minutes by the clock; None if the options give another budget.
    """

    title: str
    corpus: Corpus
    recipe: str
    minutes: float | None
    options: tuple[str, ...] = ON_WIKI


PEER = "wiki-transformers"
SYSTEMS: dict[str, System] = {
    "shakespeare-32": System("rows of 32", "shakespeare", "shakespeare", 12, ()),
    "shakespeare-128": System("rows of 128", "shakespeare", "shakespeare", 12, ROWS_OF_128),
    "shakespeare-longer": System(
        "rows of 32, 64, 128", "shakespeare", "shakespeare", 12, (*ROWS_OF_128, *LONGER)
    ),
    "sentences-by-article": System("ours, split by article", "article", "auto", None, TENTH),
    "sentences-by-sentence": System("ours, split by sentence", "sentence", "auto", None, TENTH),
    "wiki-bert": System("BERT (`bert`)", "wiki", "bert", 10),
    "wiki-24hbert": System("24hBERT", "wiki", "24hbert-style", 10),
    "wiki-cramming": System("cramming", "wiki", "cramming-style", 10),
    "wiki-mosaicbert": System("MosaicBERT", "wiki", "mosaicbert-style", 10),
    "wiki-modernbert": System("ModernBERT", "wiki", "modernbert-style", 10),
    "wiki-neobert": System("NeoBERT", "wiki", "neobert-style", 10),
    "wiki-gpt-bert": System("GPT-BERT", "wiki", "gpt-bert-style", 10),
    PEER: System("ModernBERT, AdamW, by transformers", "wiki", "Trainer", 10),
    "wiki-ours-10": System("ours, 10 minutes", "wiki", "auto", 10),
    "wiki-ours-30": System("ours, 30 minutes", "wiki", "auto", 30),
    "wiki-ours-120": System("ours, 120 minutes", "wiki", "auto", 120),
    "wiki-auto": System("`auto`", "wiki-cased", "auto", 10),
    "wiki-auto-50": System("`auto`", "wiki-cased", "auto", 50),
    "wiki-auto-120": System("`auto`", "wiki-cased", "auto", 120),
    "wiki-lines-50": System("`auto`, each sentence a document", "wiki-lines", "auto", 50),
    "wiki-lines-120": System("`auto`, each sentence a document", "wiki-lines", "auto", 120),
}


def prepare(corpus: Corpus, runs: Path) -> Path:
    """Return the prepared folder of a corpus, the same for all systems on it."""
    values: dict[str, Any] = {}
    if corpus in SENTENCES:
        folder = runs / f"corpus-by-{corpus}"
        if not folder.exists():
            write_sentences(folder, corpus)
        values["text"] = [str(folder / "train.txt")]
        values["corpus"] = {"valid_text": [str(folder / "valid.txt")]}
    else:
        name = "tinyshakespeare/input.txt" if corpus == "shakespeare" else WIKIPEDIA
        values["text"] = [str(find_corpus(name))]
        if corpus == "wiki-lines":
            values["corpus"] = {"documents": "sentences"}
    if corpus in ("wiki", *SENTENCES):  # the systems reproduced on it are uncased
        values["tokenizer"] = {"lowercase": True}
    config = resolve("shakespeare" if corpus == "shakespeare" else "auto", overrides=values)
    return next(iter(find_or_prepare(config, runs / "data", print).values()))


def train(name: str, arguments: argparse.Namespace, minutes: float | None) -> None:
    """Train a system to its end, unless that has been done."""
    system, runs = SYSTEMS[name], arguments.runs
    if (runs / name / "model").is_dir():
        return
    data = arguments.wiki if system.corpus == "wiki" else None
    data = data or prepare(system.corpus, runs)
    if name == PEER:  # which at this rate was best in time-to-quality
        bf16 = computes_in_bf16(torch.device("cpu"))
        curve = PeerRun("modernbert", 1e-3, PreparedData(data), minutes or 0, bf16).train()["curve"]
        (runs / name / "model").mkdir(parents=True)
        lines = [json.dumps({"split": "valid", **record}) for record in curve]
        (runs / name / "metrics.jsonl").write_text("\n".join(lines))
        return
    where = ("--runs-dir", runs, "--name", name, "--auto-resume")
    clock = ("--train.max_minutes", minutes) if minutes else ()
    clock = (*clock, "--train.checkpoint_every_minutes", "4")
    run_maskwright("pretrain", data, "--recipe", system.recipe, *where, *clock, *system.options)


def collect(name: str, runs: Path, minutes: float | None) -> None:
    """Write the result file of a run, if it has begun."""
    system, run = SYSTEMS[name], runs / name
    records = [r for r in read_metrics(run / "metrics.jsonl") if r.get("split") == "valid"]
    if not records:
        print(f"{run} has no validation yet")
        return
    trained = records[-1]["seconds"] / 60
    ended = (run / "model").exists() and trained >= (minutes or 0) * 0.99
    result: dict[str, Any] = {
        "title": system.title,
        "corpus": system.corpus,
        "recipe": system.recipe,
        "options": system.options,
        "minutes": minutes or round(trained),
        "threads": torch.get_num_threads(),
        "ended": ended,
        "curve": [{key: record[key] for key in _CURVE} for record in records],
        "final": {key: value for key, value in records[-1].items() if key != "split"},
    }
    if system.corpus in SENTENCES and ended:
        test = runs / f"corpus-by-{system.corpus}" / "test.txt"
        (found,) = evaluate(run, suite="fill", data=test)["suites"]
        result["one_masked"] = {score["name"].split("/")[1]: score for score in found["scores"]}
    write_result(f"reproduce-{name}", result)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choices = [*SYSTEMS, "all"]
    parser.add_argument("names", nargs="+", choices=choices, metavar="NAME", help=str(choices))
    parser.add_argument("--runs", type=Path, required=True, help="folder for runs and data")
    parser.add_argument("--minutes", type=float, help="minutes of each run [as published]")
    parser.add_argument("--wiki", type=Path, help="prepared lowercase English Wikipedia")
    parser.add_argument("--threads", type=int, help="cores to use [all]")
    parser.add_argument("--collect", action="store_true", help="train nothing, write result files")


def main(arguments: argparse.Namespace) -> None:
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
        torch.set_num_threads(arguments.threads)
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for name in SYSTEMS if "all" in arguments.names else arguments.names:
        minutes = arguments.minutes or SYSTEMS[name].minutes
        if not arguments.collect:
            train(name, arguments, minutes)
        collect(name, arguments.runs, minutes)
