"""All measures of docs/speed.md, one after another; meant to take an hour of two cores.

    MASKWRIGHT_DATA=… python -m benchmarks.bench --runs runs/bench

Prepares English Wikipedia and its sentences once, runs the programs of each measure, then writes
tables and pictures. The two peers of the time to quality train at one rate each, the best
one of those that `time_to_quality` knows, on half of the cores each; ours on as many. How long each
program took is a result, too.
"""

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.common import find_corpus, write_result

PEERS = ("bert-0.0005", "modernbert-0.001")
OURS = tuple(f"ours-{seconds}" for seconds in (240, 180, 45, 30))  # long ones first


_minutes: defaultdict[str, float] = defaultdict(float)  # of each program


def run(program: str, *arguments: object) -> None:
    """One program of this package; its failure ends all."""
    print(f"== {program}", flush=True)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", program, *map(str, arguments)], check=True)
    _minutes[program.partition(".")[2] or program] += (time.perf_counter() - began) / 60


def prepare(text: Path, folder: Path, *options: str) -> Path:
    """Prepared data, unless it is there already."""
    if not folder.exists():
        size = ("--tokenizer.vocab_size", 8192)
        run("maskwright", "prepare", text, "--out", folder, *size, *options)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="keeps data and runs")
    runs: Path = parser.parse_args().runs
    runs.mkdir(parents=True, exist_ok=True)
    is_whole = not any(runs.iterdir())  # nothing is kept from a time before
    wiki = prepare(find_corpus("wiki_en/wiki_en.train.txt.gz"), runs / "wiki")
    if not (runs / "sentences").exists():
        run("benchmarks.sentences_corpus", runs / "sentences")
    lines = ("--corpus.documents", "line")
    sentences = prepare(runs / "sentences" / "train.txt", runs / "sentences-data", *lines)
    speeds = ["--data", wiki, "--sentences", sentences, "--steps", 6, "--rounds", 3]
    run("benchmarks.training_speed", *speeds)
    run("benchmarks.step_profile", "--data", wiki)
    run("benchmarks.collation", "--data", wiki)
    run("benchmarks.start_speed", "--data", wiki, "--rounds", 3)
    run("benchmarks.preparation_speed", "--rounds", 3, "--megabytes", 60)
    run("benchmarks.tokenizer_speed", "--rounds", 3)
    run("benchmarks.growth", "--rounds", 2)
    quality = ["--runs", runs / "quality", "--data", wiki, "--at-once", 2]
    run("benchmarks.time_to_quality", *PEERS, *OURS, *quality)
    if is_whole:
        total = round(sum(_minutes.values()), 1)
        write_result("bench", {"minutes": total, "minutes_of": dict(_minutes)})
    run("benchmarks.speed_plots")
    run("benchmarks.speed_page")
    run("benchmarks.readme_results")


if __name__ == "__main__":
    main()
