"""All measures of docs/speed.md, one after another; meant to take an hour of two cores.

    MASKWRIGHT_DATA=… python -m benchmarks.bench --runs runs/bench

Prepares English Wikipedia and its sentences once, runs the programs of each measure, then writes
tables and pictures. The two peers of the time to quality train at one rate each, the middle
one of those that `time_to_quality` knows, on half of the cores each; ours on as many.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.common import find_corpus

PEERS = ("bert-0.001", "modernbert-0.001")
OURS = tuple(f"ours-{seconds}" for seconds in (180, 15, 30, 60, 120, 90))  # long ones first


def run(program: str, *arguments: object) -> None:
    """One program of `benchmarks`; its failure ends all."""
    print(f"== {program}", flush=True)
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.{program}", *map(str, arguments)], check=True
    )


def prepare(text: Path, folder: Path, *options: str) -> Path:
    """Prepared data, unless it is there already."""
    if not folder.exists():
        command = [sys.executable, "-m", "maskwright", "prepare", str(text), "--out", str(folder)]
        subprocess.run([*command, "--tokenizer.vocab_size", "8192", *options], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="keeps data and runs")
    runs: Path = parser.parse_args().runs
    runs.mkdir(parents=True, exist_ok=True)
    wiki = prepare(find_corpus("wiki_en/wiki_en.train.txt.gz"), runs / "wiki")
    if not (runs / "sentences").exists():
        run("sentences_corpus", runs / "sentences")
    lines = ("--corpus.documents", "line")
    sentences = prepare(runs / "sentences" / "train.txt", runs / "sentences-data", *lines)
    speeds = ["--data", wiki, "--sentences", sentences, "--steps", 12, "--rounds", 3]
    run("training_speed", *speeds)
    run("step_profile", "--data", wiki)
    run("collation", "--data", wiki)
    run("start_speed", "--data", wiki, "--rounds", 3)
    run("preparation_speed", "--rounds", 3, "--megabytes", 60)
    run("tokenizer_speed", "--rounds", 3)
    run("growth")
    quality = ["--runs", runs / "quality", "--data", wiki, "--at-once", 2]
    run("time_to_quality", *PEERS, *OURS, *quality)
    run("speed_plots")
    run("speed_page")
    run("readme_results")


if __name__ == "__main__":
    main()
