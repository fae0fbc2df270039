"""The classic systems and ours, one after another, for a time by the clock.

    MASKWRIGHT_DATA=… python -m benchmarks.reproduce --runs runs/classics all
    MASKWRIGHT_DATA=… python -m benchmarks.reproduce --runs runs/classics shakespeare-32
    python -m benchmarks.reproduce --runs runs/classics --collect all

Run again, it goes on where it was killed: a run that has ended is not run again, one that has
begun goes on from its last checkpoint. Each system's result file is written when its run ends,
with the curve of its validations; --collect trains nothing and writes those of all runs that have
begun. On the sentences every model is also scored on the test sentences (`sentence_scores`).
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.common import find_corpus, write_result
from benchmarks.notebook_peer import Peer
from benchmarks.sentence_scores import ComputeLogits, our_logits, read_sentences, score_sentences
from maskwright.inference.text_model import TextModel
from maskwright.logs import read_metrics
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import resolve
from maskwright.runs.find_data import prepare_for

Corpus = Literal["shakespeare", "sentences", "wiki", "wiki-cased"]
NOTEBOOK = "the notebook's own model"  # instead of a recipe
ROWS_OF_128 = ("--data.max_seq_length", "128")
LONGER = ("--train.seq_length_schedule", "0:32,0.4:64,0.7:128")
GROWING_BATCHES = (
    *("--train.batch_tokens_schedule", "0:2048,0.5:4096", "--train.micro_batch_tokens", "2048"),
)
HOUR_AND_A_HALF = ("--train.seq_length_schedule", "0:64,0.8:128", *GROWING_BATCHES)
TWO_HOURS = (
    *("--masking.final_rate", "0.3", "--train.seq_length_schedule", "0:32,0.3:64,0.8:128"),
    *GROWING_BATCHES,
)
# `sprint` as it was when it ran for half an hour on the sentences.
WIDTH_256 = (
    *("--model.hidden_size", "256", "--model.num_attention_heads", "4"),
    *("--model.intermediate_size", "768"),
)
# All on rows of one length, so that their losses can be compared.
ON_WIKI = ("--train.valid_seq_length", "128", "--train.num_validations", "15")


@dataclass(frozen=True)
class System:
    """What to train on what, and for how long."""

    title: str
    corpus: Corpus
    recipe: str
    minutes: float
    options: tuple[str, ...] = ()


SYSTEMS: dict[str, System] = {
    "shakespeare-32": System("rows of 32", "shakespeare", "shakespeare", 12),
    "shakespeare-128": System("rows of 128", "shakespeare", "shakespeare", 12, ROWS_OF_128),
    "shakespeare-longer": System(
        "rows of 32, 64, 128", "shakespeare", "shakespeare", 12, (*ROWS_OF_128, *LONGER)
    ),
    "sentences-notebook": System("the notebook, in plain torch", "sentences", NOTEBOOK, 30),
    "sentences-padded": System("`wiki-sentences`", "sentences", "wiki-sentences", 30),
    "sentences-ours": System("ours (`sprint`, width 256)", "sentences", "sprint", 30, WIDTH_256),
    "sentences-ours-long": System("ours (`tiny`)", "sentences", "tiny", 120, TWO_HOURS),
    "wiki-bert": System("BERT (`bert`)", "wiki", "bert", 10, ON_WIKI),
    "wiki-24hbert": System("24hBERT", "wiki", "24hbert-style", 10, ON_WIKI),
    "wiki-cramming": System("cramming", "wiki", "cramming-style", 10, ON_WIKI),
    "wiki-mosaicbert": System("MosaicBERT", "wiki", "mosaicbert-style", 10, ON_WIKI),
    "wiki-modernbert": System("ModernBERT", "wiki", "modernbert-style", 10, ON_WIKI),
    "wiki-neobert": System("NeoBERT", "wiki", "neobert-style", 10, ON_WIKI),
    "wiki-gpt-bert": System("GPT-BERT", "wiki", "gpt-bert-style", 10, ON_WIKI),
    "wiki-ours": System("ours (`sprint`)", "wiki", "sprint", 10, ON_WIKI),
    "wiki-sprint": System("`sprint`", "wiki-cased", "sprint", 10, ON_WIKI),
    "wiki-hour": System("`hour`", "wiki-cased", "hour", 60, ON_WIKI),
    "wiki-tiny": System("`tiny`", "wiki-cased", "tiny", 60, ON_WIKI),
    "wiki-ours-long": System("ours (`tiny`)", "wiki", "tiny", 95, (*ON_WIKI, *HOUR_AND_A_HALF)),
}
_CURVE = ("step", "tokens", "seconds", "loss", "masked_accuracy")


@dataclass(frozen=True)
class Places:
    """Where text comes from and where runs go."""

    runs: Path
    sentences: Path | None
    wiki: Path | None

    def prepare(self, corpus: Corpus) -> Path:
        """The prepared folder of a corpus, the same for all systems on it."""
        if corpus == "wiki" and self.wiki is not None:
            return self.wiki
        recipe = "sprint"
        values: dict[str, Any] = {"text": [str(self._find_text(corpus))]}
        if corpus == "shakespeare":
            recipe = "shakespeare"
        if corpus == "wiki":  # the systems reproduced on it are uncased
            values["tokenizer"] = {"lowercase": True}
        if corpus == "sentences":
            valid = str(self.sentence_file("valid"))
            recipe, values["corpus"] = "wiki-sentences", {"valid_text": [valid]}
        config = resolve(recipe, overrides=values)
        return prepare_for(config, self.runs / "data", print)

    def _find_text(self, corpus: Corpus) -> Path:
        if corpus == "sentences":
            return self.sentence_file("train")
        if corpus == "shakespeare":
            return find_corpus("tinyshakespeare/input.txt")
        return find_corpus("wiki_en/wiki_en.train.txt.gz")

    def sentence_file(self, split: str) -> Path:
        """A file that `sentences_corpus` wrote; writes them if no folder was named."""
        folder = self.sentences or self.runs / "sentences"
        if not (folder / "about.json").exists():
            program = [sys.executable, "-m", "benchmarks.sentences_corpus", str(folder)]
            subprocess.run(program, check=True)
        return folder / f"{split}.txt"


def train(name: str, places: Places, minutes: float) -> None:
    """Trains a system to its end, unless that has been done."""
    system, run = SYSTEMS[name], places.runs / name
    data = str(places.prepare(system.corpus))
    if system.recipe == NOTEBOOK:
        program = [sys.executable, "-m", "benchmarks.notebook_peer", data, str(run)]
        subprocess.run([*program, "--minutes", str(minutes)], check=True)
    elif not (run / "model").is_dir():
        program = [sys.executable, "-m", "maskwright", "pretrain", data, "--recipe", system.recipe]
        program += ["--runs-dir", str(places.runs), "--name", name, "--auto-resume"]
        program += ["--train.max_minutes", str(minutes), "--train.checkpoint_every_minutes", "4"]
        subprocess.run([*program, *system.options], check=True)


def collect(name: str, places: Places, minutes: float) -> None:
    """Writes the result file of a run that has begun, if it has."""
    system, run = SYSTEMS[name], places.runs / name
    records = [r for r in read_metrics(run / "metrics.jsonl") if r.get("split") == "valid"]
    if not records:
        print(f"{run} has no validation yet")
        return
    model = run / ("checkpoint.pt" if system.recipe == NOTEBOOK else "model")
    is_whole = records[-1]["seconds"] >= 60 * minutes * 0.99
    result: dict[str, Any] = {
        "title": system.title,
        "corpus": system.corpus,
        "recipe": system.recipe,
        "options": system.options,
        "minutes": minutes,
        "threads": torch.get_num_threads(),
        "ended": model.exists() and is_whole,
        "curve": [{key: record[key] for key in _CURVE} for record in records],
        "final": {key: value for key, value in records[-1].items() if key != "split"},
    }
    if result["ended"] and system.corpus == "sentences":
        result["test"] = score_on_test(model, places, minutes)
    write_result(f"reproduce-{name}", result)


def score_on_test(model: Path, places: Places, minutes: float) -> dict[str, Any]:
    """Scores of a trained model on the test sentences, and its size."""
    if model.name == "checkpoint.pt":
        peer = Peer(PreparedData(places.prepare("sentences")), model.parent, minutes)
        tokenizer, network, compute = peer.data.tokenizer, peer.model, notebook_logits(peer)
    else:
        ours = TextModel(model, "cpu")
        tokenizer, network, compute = ours.tokenizer, ours.model, our_logits(ours)
    sentences = read_sentences(places.sentence_file("test"), tokenizer, 126)
    size = sum(parameter.numel() for parameter in network.parameters())
    return {"parameters": size, **score_sentences(compute, sentences, tokenizer)}


def notebook_logits(peer: Peer) -> ComputeLogits:
    """The logits of the peer's model."""
    peer.model.eval()
    pad, mask = peer.data.tokenizer.pad_id, peer.data.tokenizer.mask_id

    @torch.no_grad()
    def compute(rows: list[list[int]]) -> torch.Tensor:
        longest = len(rows[-1])
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        return peer.model(ids)[ids == mask]

    return compute


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=[*SYSTEMS, "all"], metavar="NAME")
    parser.add_argument("--runs", type=Path, required=True, help="keeps runs and prepared data")
    parser.add_argument("--minutes", type=float, help="instead of what each system says")
    parser.add_argument("--sentences", type=Path, help="a folder that sentences_corpus wrote")
    parser.add_argument("--wiki", type=Path, help="English Wikipedia, prepared already")
    parser.add_argument("--threads", type=int, help="cores to use [all]")
    parser.add_argument("--collect", action="store_true", help="train nothing, write result files")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
        torch.set_num_threads(arguments.threads)
    arguments.runs.mkdir(parents=True, exist_ok=True)
    places = Places(arguments.runs, arguments.sentences, arguments.wiki)
    for name in SYSTEMS if "all" in arguments.names else arguments.names:
        minutes = arguments.minutes or SYSTEMS[name].minutes
        if not arguments.collect:
            train(name, places, minutes)
        collect(name, places, minutes)


if __name__ == "__main__":
    main()
