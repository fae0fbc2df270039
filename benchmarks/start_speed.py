"""Measure the time from the command to the first optimizer step, beside transformers' Trainer.

Fresh processes, in turns, without compiling. The text of both is prepared: ours in a prepared
folder, which it verifies first; the peer (`trainer_peer`) in blocks of token ids that `datasets`
saved. The clock stops when a program prints the line after its first step.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.common import MASKWRIGHT, add_data, divide, find_prepared, race, write_result
from benchmarks.trainer_peer import cut_blocks, wrap_tokenizer
from maskwright.pretraining.prepared_data import PreparedData

NUM_ROWS = 50_000
_FIRST_STEP = "step 1 "


def time_until_step(command: Sequence[str]) -> float:
    """Return the seconds until a program prints its first step; then it is killed."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line)
        if _FIRST_STEP in line:
            break
    seconds = time.perf_counter() - began
    process.kill()
    process.communicate()
    if not printed or _FIRST_STEP not in printed[-1]:
        sys.exit(f"{' '.join(command)} ended before its first step:\n{''.join(printed)}")
    return seconds


def start_ours(place: str) -> float:
    """Return the seconds from our command to its first step, from a folder or a URL."""
    with tempfile.TemporaryDirectory() as runs:
        command = [MASKWRIGHT[0], "-u", *MASKWRIGHT[1:], "pretrain", place, "--recipe", "tiny"]
        command += ["--train.compile", "off", "--train.log_every_steps", "1", "--runs-dir", runs]
        return time_until_step(command)


def save_blocks(data: PreparedData, folder: Path) -> None:
    """Save rows of 128 tokens as `run_mlm.py` leaves them, and the tokenizer."""
    from datasets import Dataset

    rows = cut_blocks(data, NUM_ROWS)
    columns = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
    Dataset.from_dict(columns).save_to_disk(str(folder / "blocks"))
    wrap_tokenizer(data.tokenizer).save_pretrained(folder / "tokenizer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--rounds", type=int, default=7)


def main(arguments: argparse.Namespace) -> None:
    with find_prepared(arguments.data) as folder, tempfile.TemporaryDirectory() as scratch:
        save_blocks(PreparedData(folder), Path(scratch))
        theirs = [sys.executable, "-u", "-m", "benchmarks.trainer_peer", scratch]
        contenders = {
            "ours": partial(start_ours, str(folder)),
            "Trainer": partial(time_until_step, theirs),
        }
        found = race(contenders, arguments.rounds, "seconds")
    ratio = divide(found["ours"], found["Trainer"])
    write_result("start-speed", {"seconds": found, "ours_over_theirs": ratio})
