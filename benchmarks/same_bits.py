"""Train with one command many times on 1, 2 and 4 threads: the models must have the same bits.

The command is the recipe of quickstart with its own corpus and a budget in steps, compiled and not.
Nothing is downloaded.
"""

import argparse
import os
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.common import run_maskwright, write_result
from maskwright.files import hash_file

RECIPE = "quickstart"


def train(scratch: Path, threads: int, compiled: str, steps: int) -> str:
    """Train once; return the sha256 of the weights."""
    run = scratch / f"{threads}-{compiled}"
    flags: dict[str, object] = {
        "--train.max_steps": steps,
        "--train.compile": compiled,
        "--data-dir": scratch,
    }
    with mock.patch.dict(os.environ, OMP_NUM_THREADS=str(threads)):
        run_maskwright(
            "pretrain", "--recipe", RECIPE, "--runs-dir", scratch, "--name", run.name,
            *(part for flag in flags.items() for part in flag),
        )  # fmt: skip
    digest = hash_file(run / "model" / "model.safetensors")
    run.rename(scratch / f"{run.name}-{len(list(scratch.glob(f'{run.name}*')))}")
    return digest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=5, help="with each number of threads [5]")
    parser.add_argument("--steps", type=int, default=60, help="of each run [60]")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4], help="[1 2 4]")


def main(arguments: argparse.Namespace) -> None:
    ways: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="maskwright-bits-") as folder:
        for threads, compiled in product(arguments.threads, ("off", "on")):
            hashes = [
                train(Path(folder), threads, compiled, arguments.steps)
                for _ in range(arguments.runs)
            ]
            ways.append({"compile": compiled, "threads": threads, "sha256": hashes})
            print(f"compile {compiled}, {threads} threads: {set(hashes)}", flush=True)
    num_runs = sum(len(way["sha256"]) for way in ways)
    differences = sum(digest != way["sha256"][0] for way in ways for digest in way["sha256"])
    result = {"recipe": RECIPE, "steps": arguments.steps, "runs": num_runs}
    write_result("same-bits", {**result, "differences": differences, "ways": ways})
    if differences:
        sys.exit("one command gave models with different bits")
