"""Compare preparation with `run_mlm.py`; with --whole, measure all of English Wikipedia.

The text is the beginning of English Wikipedia. Each contender is a separate program on all cores,
and its start counts. Ours cleans, drops duplicates, splits, encodes, hashes and writes; the peer
(`run_mlm_peer`) tokenizes and cuts blocks. Both use the same existing tokenizer. Memory is the peak
of all processes of a contender, with shared pages divided among them. With --whole there is no
peer, the tokenizer is trained as well, and memory is resident memory, an upper bound.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import common
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer

PROCESSES = str(os.cpu_count() or 1)


def run(command: list[str], out: Path, size: int, peaks: list[int]) -> float:
    """Return the megabytes a second of a program that writes `out`, which is removed."""
    peak, seconds = common.measure_peak(command)
    peaks.append(round(peak.proportional / 1e6))
    shutil.rmtree(out)
    return size / 1e6 / seconds


def compare(scratch: Path, megabytes: float, rounds: int) -> dict[str, Any]:
    """Return the speeds and peaks of ours and the peer, and their ratios."""
    text, tokenizer, out = scratch / "text.txt", scratch / "tokenizer", scratch / "out"
    _, size = common.write_articles(text, common.read_wikipedia(), megabytes)
    train_tokenizer([text.read_text(encoding="utf-8")], TokenizerConfig()).save(tokenizer)
    ours = [*common.MASKWRIGHT, "prepare", str(text), "--out", str(out)]
    ours += ["--tokenizer.path", str(tokenizer), "--workers", PROCESSES]
    theirs = [sys.executable, "-m", "benchmarks.run_mlm_peer", str(text), str(tokenizer), str(out)]
    commands = {"ours": ours, "run_mlm": [*theirs, PROCESSES]}
    peaks: dict[str, list[int]] = {name: [] for name in commands}
    contenders = {n: partial(run, command, out, size, peaks[n]) for n, command in commands.items()}
    found = common.race(contenders, rounds, "MB/s")
    return {
        "text_bytes": size,
        "processes": int(PROCESSES),
        "megabytes_per_second": found,
        "ratio": common.divide(found["ours"], found["run_mlm"]),
        "peak_megabytes": peaks,
        "ratio_of_memory": common.divide(peaks["ours"], peaks["run_mlm"]),
    }


def measure_whole(out: Path) -> dict[str, Any]:
    """Return speed and memory of the command as a user runs it on all of English Wikipedia."""
    text = str(common.find_corpus(common.WIKIPEDIA))
    command = [*common.MASKWRIGHT, "prepare", text, "--out", str(out), *common.VOCAB_SIZE]
    peak, seconds = common.measure_peak(command)
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    splits = manifest["splits"].values()
    num_bytes = sum(split["num_bytes"] for split in splits)
    return {
        "vocab_size": manifest["vocab_size"],
        "text_bytes": num_bytes,
        "tokens": sum(split["num_tokens"] for split in splits),
        "seconds": round(seconds, 1),
        "megabytes_per_second": round(num_bytes / 1e6 / seconds, 2),
        "peak_resident_megabytes": round(peak.resident / 1e6),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="prepare the whole corpus, no peer")


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.whole:
            common.write_result("prepare-wiki_en", measure_whole(Path(scratch) / "wiki"))
        else:
            found = compare(Path(scratch), arguments.megabytes, arguments.rounds)
            common.write_result("preparation-speed", found)
