"""One small pretraining run, undisturbed and killed again and again: do both end alike?"""

import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.crash.killing import (
    MASKWRIGHT,
    Attempt,
    Moment,
    after,
    appearing,
    attempt,
    deal_aims,
    list_names,
    list_temporary,
    never,
    when,
)
from benchmarks.crash.text import write_text
from maskwright.logs import read_metrics

LOG_EVERY_STEPS, NUM_VALIDATIONS = 3, 5
# Everything that a run has to remember is in use: average, curricula, dropout, both optimizers,
# and the sums of a record that a checkpoint divides.
FLAGS = [
    "--data.max_seq_length", "64", "--model.hidden_size", "64", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "96",
    "--model.hidden_dropout", "0.1", "--masking.rate", "0.3", "--masking.final_rate", "0.15",
    "--train.batch_tokens_schedule", "0:512,0.6:1024", "--train.micro_batch_tokens", "512",
    "--train.seq_length_schedule", "0:32,0.3:64", "--train.ema_decay", "0.99",
    "--train.log_every_steps", str(LOG_EVERY_STEPS),
    "--train.num_validations", str(NUM_VALIDATIONS),
    "--train.valid_tokens", "8192", "--train.final_valid_tokens", "16384",
    "--train.compile", "off",
]  # fmt: skip
CLOCKS = re.compile("seconds?$")
# Of twenty kills.
AIMS = {"checkpoint": 11, "start": 3, "validation": 3, "anywhere": 2, "model": 1}


@dataclass
class Tally:
    """What happened, over all runs."""

    kills: Counter[str] = field(default_factory=Counter[str])
    resumed: int = 0
    started_again: int = 0
    runs: int = 0
    unreadable_checkpoints: int = 0
    differences: list[str] = field(default_factory=list[str])


class PretrainingRuns:
    """The same run below `folder` any number of times.

    Args:
        folder: an empty folder to work in.
        steps: the length of a run; a multiple of 15, so that a record comes before each validation.
        checkpoint_seconds: between two checkpoints.
    """

    def __init__(self, folder: Path, steps: int = 300, checkpoint_seconds: float = 0.3) -> None:
        if steps % (LOG_EVERY_STEPS * NUM_VALIDATIONS):
            raise ValueError(f"steps = {steps} is not a multiple of 15")
        self.folder, self.steps = folder, steps
        self.flags = [*FLAGS, "--train.max_steps", str(steps), "--runs-dir", str(folder)]
        self.flags += ["--train.checkpoint_every_minutes", str(checkpoint_seconds / 60)]
        self.data, self.whole = folder / "data", folder / "whole"
        self.tally = Tally()
        write_text(folder / "text.txt", 0.6)
        prepare = [*MASKWRIGHT, "prepare", str(folder / "text.txt"), "--out", str(self.data)]
        prepare += ["--tokenizer.vocab_size", "512", "--corpus.valid_fraction", "0.1"]
        subprocess.run(prepare, check=True, capture_output=True)
        self.pace = Pace(self.whole)
        done = self.go_on(self.whole, self.pace)
        if done.code:
            raise SystemExit(f"the undisturbed run failed:\n{done.output}")
        self.records = read_metrics(self.whole / "metrics.jsonl")
        self.validated = {r["step"] for r in self.records if r["split"] == "valid"}

    def go_on(
        self, run: Path, moment: Moment = never, number: signal.Signals = signal.SIGKILL
    ) -> Attempt:
        """Resumes `run`, or starts it where it has no checkpoint yet."""
        arguments = ["pretrain", "--resume", str(run)]
        if not list_names(run / "checkpoints", "step_"):
            arguments = ["pretrain", str(self.data), "--name", run.name, *self.flags]
        log = self.folder / f"{run.name}.log"
        return attempt(arguments, moment, log, number)

    def kill(self, kills: int, seed: int = 0) -> Tally:
        """Runs that are killed `kills` times in all, each until it ends; all are compared."""
        draw = random.Random(seed)
        names = deal_aims(draw, AIMS)
        while self.tally.kills.total() < kills:
            self.tally.runs += 1
            run = self.folder / f"killed-{self.tally.runs}"
            self._kill_until_it_ends(run, kills, names, draw)
            self.tally.differences += self.compare(run)
            shutil.rmtree(run)
        return self.tally

    def _kill_until_it_ends(
        self, run: Path, kills: int, aims: Iterator[str], draw: random.Random
    ) -> None:
        had_checkpoint = False
        while True:
            has_checkpoint = bool(list_names(run / "checkpoints", "step_"))
            if had_checkpoint and not has_checkpoint:
                self.tally.differences.append(f"{run.name} has lost its checkpoints")
            had_checkpoint = has_checkpoint
            self.tally.resumed += has_checkpoint
            self.tally.started_again += run.exists() and not has_checkpoint
            enough = self.tally.kills.total() >= kills
            moment = never if enough else self.aim(run, next(aims), draw)
            before = list_temporary(run, run / "checkpoints")
            metrics = read_bytes(run / "metrics.jsonl")
            done = self.go_on(run, moment)
            self.tally.unreadable_checkpoints += done.output.count("warning:")
            if done.was_killed:
                left = {path for path, *_ in list_temporary(run, run / "checkpoints") - before}
                self.tally.kills[self.find_place(run, left, metrics)] += 1
            elif done.code:
                raise SystemExit(f"{run.name} ended with exit code {done.code}:\n{done.output}")
            else:
                return

    def aim(self, run: Path, aim: str, draw: random.Random) -> Moment:
        """The moment for a kill that is to hit what `aim` names."""
        pace = self.pace
        if aim == "checkpoint":
            wait = draw.choice([0.0, draw.uniform(0, 1.2 * pace.checkpoint_seconds)])
            return when(appearing(run / "checkpoints", ".step_", draw.randint(0, 3)), wait)
        if aim == "validation":
            return when(self.validating(run), draw.uniform(0, 0.05))
        if aim == "model":
            return when(appearing(run, ".model.tmp"), draw.uniform(0, 0.01))
        if aim == "start" and not run.exists():
            return when(run.exists, draw.uniform(0, 0.02))
        if aim == "start":
            return after(draw.uniform(0, pace.startup_seconds))
        return after(draw.uniform(0, (pace.startup_seconds + pace.seconds) / 2))

    def validating(self, run: Path) -> Callable[[], bool]:
        """Whether a run is at a validation: its metrics end with a step that has one.

        They may have ended so already when an earlier process was killed; that does not count.
        """
        path = run / "metrics.jsonl"
        before = read_bytes(path)

        def is_validating() -> bool:
            content = read_bytes(path)
            try:
                last = json.loads(content.splitlines()[-1])
            except (ValueError, IndexError):
                return False
            is_due = last["split"] == "train" and last["step"] in self.validated
            return is_due and content != before

        return is_validating

    def find_place(self, run: Path, left: set[Path], metrics: bytes) -> str:
        """Where a killed process was.

        Args:
            left: what it has left under temporary names.
            metrics: those of the run when it began.
        """
        checkpoints = [path.name for path in left if path.parent.name == "checkpoints"]
        if any(name.endswith(".old") for name in checkpoints):
            return "between the two renames of a checkpoint"
        if checkpoints:
            return "writing a checkpoint"
        if run / ".model.tmp" in left:
            return "writing the model folder"
        if read_bytes(run / "metrics.jsonl") == metrics:
            return "starting"
        records = read_metrics(run / "metrics.jsonl")
        if records and records[-1]["split"] == "train" and records[-1]["step"] in self.validated:
            return "validating"
        return "elsewhere"

    def compare(self, run: Path) -> list[str]:
        """How an ended run differs from the undisturbed one, in words; clocks may differ."""
        found: list[str] = []
        last = f"checkpoints/step_{self.steps:08d}"
        files = [path.relative_to(self.whole) for path in self.whole.rglob("*.safetensors")]
        compared = [file for file in files if file.parts[0] == "model" or last in file.as_posix()]
        if {file.parts[0] for file in compared} != {"model", "checkpoints"}:
            found.append("the undisturbed run lacks its model or its last checkpoint")
        for file in compared:
            if not is_same(self.whole / file, run / file):
                found.append(f"{run.name}: {file} differs")
        if read_state(run / last) != read_state(self.whole / last):
            found.append(f"{run.name}: the state after the last step differs")
        records = read_metrics(run / "metrics.jsonl")
        if describe(records) != describe(self.records):
            found.append(f"{run.name}: metrics.jsonl differs (a hole, a double or another loss)")
        strays = [path.name for path in run.rglob(".*")]
        if strays:
            found.append(f"{run.name} still holds {', '.join(strays)}")
        return found


class Pace:
    """Never the moment for a kill: measures how fast an undisturbed run goes.

    Attributes:
        startup_seconds: to the first line of metrics.
        checkpoint_seconds: of writing one checkpoint, the median.
        seconds: in all.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self.startup_seconds = self.checkpoint_seconds = self.seconds = 0.0

    def __call__(self, process: "subprocess.Popen[bytes]") -> bool:
        begun, since, lasted = time.perf_counter(), None, list[float]()
        while process.poll() is None:
            now = time.perf_counter() - begun
            if not self.startup_seconds and read_metrics(self._run / "metrics.jsonl"):
                self.startup_seconds = now
            writing = bool(list_names(self._run / "checkpoints", ".step_"))
            if writing and since is None:
                since = now
            elif not writing and since is not None:
                lasted.append(now - since)
                since = None
            time.sleep(0.0005)
        self.seconds = time.perf_counter() - begun
        self.checkpoint_seconds = sorted(lasted)[len(lasted) // 2] if lasted else 0.0
        return False


def read_bytes(path: Path) -> bytes:
    """The content of a file; nothing if there is none."""
    return path.read_bytes() if path.exists() else b""


def is_same(one: Path, other: Path) -> bool:
    """Whether both files are there with the same bytes."""
    return other.is_file() and one.read_bytes() == other.read_bytes()


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The counts of a checkpoint but for its clocks."""
    values = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return {name: value for name, value in values.items() if not CLOCKS.search(name)}


def describe(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records without their clocks; two runs must agree on the rest, in order."""
    return [
        {name: v for name, v in record.items() if not CLOCKS.search(name)} for record in records
    ]
