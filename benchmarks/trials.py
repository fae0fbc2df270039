"""Short runs of a recipe side by side, at equal wall-clock: what ablations and sweeps are made of.

Trials share the machine alike: two at a time on one core each, or one at a time on all. One that
has ended is not run again and one that was killed goes on, so a program of trials can be
interrupted and given more of them later; but not other minutes.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import find_corpus
from maskwright.logs import read_metrics

_SCORES = ("step", "tokens", "seconds", "loss", "masked_accuracy", "unigram_accuracy")


@dataclass(frozen=True)
class Trial:
    """One run: its name without the seed, and its flags over the recipe's."""

    name: str
    seed: int
    options: tuple[str, ...] = ()

    @property
    def run_name(self) -> str:
        return f"{self.name}-seed{self.seed}"


@dataclass(frozen=True)
class Bench:
    """Where trials run, on what, and for how long."""

    runs: Path
    data: Path
    recipe: str
    minutes: float
    at_once: int

    def run_all(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Trains what has not ended yet; gives each trial when it has."""
        with ThreadPoolExecutor(self.at_once) as pool:
            begun = {pool.submit(self.train, trial): trial for trial in trials}
            for run in as_completed(begun):
                run.result()
                yield begun[run]

    def train(self, trial: Trial) -> None:
        """Trains one, unless it has ended; what it prints goes to a log beside its run."""
        run = self.runs / trial.run_name
        if (run / "model").is_dir():
            return
        command = [sys.executable, "-m", "maskwright", "pretrain", str(self.data)]
        command += ["--recipe", self.recipe, "--seed", str(trial.seed), "--auto-resume"]
        command += ["--runs-dir", str(self.runs), "--name", run.name]
        command += ["--train.max_minutes", str(self.minutes)]
        command += ["--train.final_valid_tokens", "131072", "--train.checkpoint_every_minutes", "2"]
        cores = max(1, (os.cpu_count() or 1) // self.at_once)
        environment = {**os.environ, "OMP_NUM_THREADS": str(cores)}
        with (self.runs / f"{run.name}.log").open("a") as file:
            subprocess.run(
                [*command, *trial.options], check=True, env=environment, stdout=file, stderr=file
            )

    def read(self, trial: Trial) -> dict[str, Any] | None:
        """The last scores of a trial that has ended."""
        run = self.runs / trial.run_name
        records = read_metrics(run / "metrics.jsonl") if (run / "model").is_dir() else []
        final = [record for record in records if record.get("final")]
        return {key: final[-1][key] for key in _SCORES} if final else None

    @property
    def conditions(self) -> dict[str, Any]:
        """What all trials share, for a result file."""
        return {"recipe": self.recipe, "minutes": self.minutes, "runs_at_once": self.at_once}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of every program of trials."""
    parser.add_argument("--recipe", default="sprint", help="what is varied [sprint]")
    parser.add_argument("--minutes", type=float, default=5, help="of each run [5]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="[0 1]")
    parser.add_argument("--at-once", type=int, default=2, help="runs that share the cores [2]")
    parser.add_argument("--runs", type=Path, required=True, help="keeps the runs")
    parser.add_argument("--data", type=Path, help="English Wikipedia, prepared already")


def open_bench(arguments: argparse.Namespace) -> Bench:
    """The bench that these flags describe; prepares English Wikipedia if no data was named."""
    arguments.runs.mkdir(parents=True, exist_ok=True)
    data = arguments.data or arguments.runs / "data"
    if not data.exists():
        text = str(find_corpus("wiki_en/wiki_en.train.txt.gz"))
        command = [sys.executable, "-m", "maskwright", "prepare", text, "--out", str(data)]
        subprocess.run(command, check=True)
    return Bench(arguments.runs, data, arguments.recipe, arguments.minutes, arguments.at_once)
