"""Run all benchmarks of docs/results.md, one after another: about an hour on two cores.

    MASKWRIGHT_DATA=… python -m benchmarks bench --runs runs/bench

It prepares English Wikipedia and its sentences once, runs the benchmarks, then writes tables and
pictures. The two peers of `time-to-quality` train with their best known learning rates, on half of
the cores each; so do our runs. The minutes of each benchmark are also a result.
"""

import argparse
import subprocess
import time
from collections import defaultdict
from pathlib import Path

from benchmarks import common

PEERS = ("bert-0.0005", "modernbert-0.001")
OURS = ("ours-240", "ours-180", "ours-45", "ours-30")  # long ones first


def run(program: str, *arguments: object) -> float:
    """Run a benchmark, whose failure ends all; return its minutes."""
    print(f"== {program}", flush=True)
    began = time.perf_counter()
    subprocess.run([*common.BENCHMARKS, program, *map(str, arguments)], check=True)
    return (time.perf_counter() - began) / 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, required=True, help="folder for data and runs")


def main(arguments: argparse.Namespace) -> None:
    runs: Path = arguments.runs
    runs.mkdir(parents=True, exist_ok=True)
    is_whole = not any(runs.iterdir())  # nothing is kept from an earlier call
    minutes: defaultdict[str, float] = defaultdict(float)
    wiki, sentences, text = runs / "wiki", runs / "sentences-data", runs / "sentences"
    if not text.exists():
        minutes["sentences-corpus"] = run("sentences-corpus", text)
    for folder, source, lines in (
        (wiki, common.find_corpus(common.WIKIPEDIA), ()),
        (sentences, text / "train.txt", ("--corpus.documents", "line")),
    ):
        if not folder.exists():
            options = ("--out", folder, *common.VOCAB_SIZE, *lines)
            seconds = common.run_maskwright("prepare", source, *options)
            minutes["prepare"] += seconds / 60
    quality = ("--runs", runs / "quality", "--data", wiki, "--at-once", 2)
    for program, *flags in (
        ("training-speed", "--data", wiki, "--sentences", sentences, "--steps", 6, "--rounds", 3),
        ("step-profile", "--data", wiki),
        ("collation", "--data", wiki),
        ("start-speed", "--data", wiki, "--rounds", 3),
        ("preparation-speed", "--rounds", 3, "--megabytes", 60),
        ("tokenizer-speed", "--rounds", 3),
        ("time-to-quality", *PEERS, *OURS, *quality),
    ):
        minutes[program] = run(program, *flags)
    if is_whole:
        total = round(sum(minutes.values()), 1)
        common.write_result("bench", {"minutes": total, "minutes_of": dict(minutes)})
    run("report")
