"""The guide of docs/data.md end to end: a dump of Korean Wikipedia to a trained encoder.

    MASKWRIGHT_DATA=… python -m benchmarks.dump_guide --runs runs/guide [--epochs 8]

The articles are wrapped into a multistream dump with what dumps have around text: headings, links,
templates, tables, references, categories, redirects. Then prepared with a report, trained, and
scored on other articles. What has ended is not done again by a second call.
"""

import argparse
import gzip
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import find_corpus, write_result
from benchmarks.wikitext import PAGES_A_STREAM, wrap
from maskwright.files import read_json, write_json
from maskwright.logs import read_metrics
from tests.corpus.dumps import write_multistream

VOCAB_SIZE = 8192  # half of the guide's, as the text is small


def read_articles(path: Path) -> Iterator[list[str]]:
    """The lines of each article, its title first."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for article in file.read().split("\n\n"):
            lines = [line for line in article.split("\n") if line.strip()]
            if len(lines) > 1:
                yield lines


def run(*command: str | Path) -> float:
    """A command of maskwright; its seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "maskwright", *map(str, command)], check=True)
    return time.perf_counter() - began


def prepare_dump(runs: Path) -> dict[str, Any]:
    """Writes the dump and prepares it, in ``RUNS/data``."""
    dump, data = runs / "kowiki-pages-articles-multistream.xml.bz2", runs / "data"
    articles = read_articles(find_corpus("wiki_ko/wiki_ko.train.txt.gz"))
    pages = [wrap(lines, "ko") for lines in articles]
    write_multistream(dump, pages, "ko", PAGES_A_STREAM)
    selection = ("--select.language", "ko", "--select.near_duplicates", "0.8")
    vocabulary = ("--tokenizer.vocab_size", str(VOCAB_SIZE))
    seconds = run("prepare", dump, "--out", data, "--report", *selection, *vocabulary)
    manifest = read_json(data / "manifest.json", 1 << 20)
    return {
        "dump_megabytes_packed": round(dump.stat().st_size / 1e6, 2),
        "pages": len(pages),
        "prepare_seconds": round(seconds, 1),
        "dropped": manifest["dropped"],
        "tokens_to_train_on": manifest["splits"]["train"]["num_tokens"],
    }


def train(runs: Path, epochs: float) -> dict[str, Any]:
    """Trains on the prepared data, in ``RUNS/ko``."""
    budget = ("--train.max_minutes", "none", "--train.max_epochs", str(epochs))
    run(
        "pretrain", runs / "data", "--recipe", "sprint", "--runs-dir", runs, "--name", "ko", *budget
    )
    last = read_metrics(runs / "ko" / "metrics.jsonl")[-1]
    return {"epochs": epochs, "steps": last["step"], "tokens": last["tokens"]}


def score(runs: Path) -> dict[str, Any]:
    """Scores what was trained on the articles that are held out of the corpus."""
    held_out, scores = find_corpus("wiki_ko/wiki_ko.valid.txt.gz"), runs / "held-out.json"
    run("evaluate", runs / "ko", "--suite", "mlm", "--data", held_out, "--out", scores)
    (suite,) = read_json(scores, 1 << 20)["suites"]
    found = {one["name"]: one for one in suite["scores"]}
    return {"held_out": {name: found[name] for name in ("masked_accuracy", "loss")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="keeps the dump, data and run")
    parser.add_argument("--epochs", type=float, default=8)
    arguments = parser.parse_args()
    runs: Path = arguments.runs
    runs.mkdir(parents=True, exist_ok=True)
    stages = {
        "prepared": partial(prepare_dump, runs),
        "trained": partial(train, runs, arguments.epochs),
        "scored": partial(score, runs),
    }
    result: dict[str, Any] = {}
    for name, stage in stages.items():
        done = runs / f"{name}.json"
        if not done.exists():
            write_json(done, stage())
        result |= read_json(done, 1 << 20)
    write_result("dump-guide", result)


if __name__ == "__main__":
    main()
