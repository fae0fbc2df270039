"""A small pretraining run of which model, last checkpoint and metrics must be the same."""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.common import run_maskwright
from maskwright.logs import read_metrics
from tests.reliability.crash.job import Job, read_bytes, read_stable
from tests.reliability.crash.killing import (
    Attempt,
    Moment,
    Process,
    after,
    appearing,
    list_names,
    when,
    write_text,
)

LOG_EVERY_STEPS, NUM_VALIDATIONS = 3, 5
TINY = [
    "--data.max_seq_length", "64", "--model.hidden_size", "64", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "96", "--train.compile", "off",
]  # fmt: skip
SMALL_DATA = ["--tokenizer.vocab_size", "512", "--corpus.valid_fraction", "0.1"]
# Everything that a run has to remember is in use: average, curricula, dropout, both optimizers,
# and the sums of a record that a checkpoint divides.
FLAGS = [
    *TINY, "--model.hidden_dropout", "0.1", "--masking.rate", "0.3", "--masking.final_rate", "0.15",
    "--train.batch_tokens_schedule", "0:512,0.6:1024", "--train.micro_batch_tokens", "512",
    "--train.seq_length_schedule", "0:32,0.3:64", "--train.ema_decay", "0.99",
    "--train.log_every_steps", str(LOG_EVERY_STEPS),
    "--train.num_validations", str(NUM_VALIDATIONS),
    "--train.valid_tokens", "8192", "--train.final_valid_tokens", "16384",
]  # fmt: skip


class PretrainingRuns(Job):
    """The same run on the same prepared data.

    Args:
        folder: an empty folder to work in.
        steps: the length of a run; a multiple of 15, so that a record comes before each validation.
        checkpoint_seconds: between two checkpoints.
        report: write the charts at the end, which take most of a short run.
    """

    aims: ClassVar = {"checkpoint": 11, "start": 3, "validation": 3, "anywhere": 2, "model": 1}

    def __init__(
        self, folder: Path, steps: int = 300, checkpoint_seconds: float = 0.3, report: bool = True
    ) -> None:
        super().__init__(folder)
        if steps % (LOG_EVERY_STEPS * NUM_VALIDATIONS):
            raise ValueError(f"steps = {steps} is not a multiple of 15")
        self.flags = [*FLAGS, "--train.max_steps", str(steps), "--runs-dir", str(folder)]
        self.flags += ["--train.checkpoint_every_minutes", str(checkpoint_seconds / 60)]
        self.flags += ["--train.report", str(report).lower()]
        self.data, self.last = folder / "data", f"checkpoints/step_{steps:08d}"
        text = write_text(folder / "text.txt", 0.6)
        run_maskwright("prepare", text, "--out", self.data, *SMALL_DATA)
        self.pace = Pace(self.whole)
        self.run_whole(self.pace)
        records = read_metrics(self.whole / "metrics.jsonl")
        self.validated = {r["step"] for r in records if r["split"] == "valid"}
        files = self.list_files(self.whole)
        if not files >= {"model/model.safetensors", f"{self.last}/state.json"}:
            raise SystemExit(f"the undisturbed run lacks its model or last checkpoint: {files}")

    def list_arguments(self, out: Path) -> list[str]:
        if self.is_resumable(out):
            return ["pretrain", "--resume", str(out)]
        return ["pretrain", str(self.data), "--name", out.name, *self.flags]

    def list_folders(self, out: Path) -> tuple[Path, ...]:
        return out, out / "checkpoints"

    def is_resumable(self, out: Path) -> bool:
        return bool(list_names(out / "checkpoints", "step_"))

    def list_files(self, out: Path) -> set[str]:
        """Return weights, counts and metrics, and anything under a temporary name."""
        names = {p.relative_to(out).as_posix() for p in out.rglob("*.safetensors")}
        kept = {name for name in names if name.startswith(("model/", self.last))}
        strays = {p.relative_to(out).as_posix() for p in out.rglob(".*")}
        return {*kept, *strays, f"{self.last}/state.json", "metrics.jsonl"}

    def aim(self, out: Path, aim: str, draw: random.Random) -> Moment:
        pace = self.pace
        if aim == "checkpoint":
            wait = draw.choice([0.0, draw.uniform(0, 1.2 * pace.checkpoint_seconds)])
            return when(appearing(out / "checkpoints", ".step_", draw.randint(0, 3)), wait)
        if aim == "validation":
            return when(self.validating(out), draw.uniform(0, 0.05))
        if aim == "model":
            return when(appearing(out, ".model.tmp"), draw.uniform(0, 0.01))
        if aim == "start" and not out.exists():
            return when(out.exists, draw.uniform(0, 0.02))
        if aim == "start":
            return after(draw.uniform(0, pace.startup_seconds))
        return after(draw.uniform(0, (pace.startup_seconds + pace.seconds) / 2))

    def aim_stop(self, out: Path, number: int, draw: random.Random) -> Moment:
        """Return a validation, a checkpoint and a step in turns."""
        if number % 3 == 0:
            return when(self.validating(out))
        if number % 3 == 1:
            return when(appearing(out / "checkpoints", ".step_"), draw.uniform(0, 0.02))
        path, count = out / "metrics.jsonl", draw.randint(1, 7)
        before = len(read_metrics(path))
        return when(lambda: len(read_metrics(path)) >= before + count)

    def check_stopped(self, out: Path, done: Attempt) -> Iterator[str]:
        last = read_metrics(out / "metrics.jsonl")[-1]["step"]
        newest = max((out / "checkpoints").glob("step_*"))
        if not 0 <= read_state(newest)["step"] - last < LOG_EVERY_STEPS:
            yield f"at step {last}, but the checkpoint is {newest.name}"
        if f"--resume {out}" not in done.output:
            yield "the output does not say how to resume"

    def validating(self, out: Path) -> Callable[[], bool]:
        """Return a test for a run at a validation: its metrics end with a step that has one.

        Metrics that ended so when an earlier process was killed do not count.
        """
        path = out / "metrics.jsonl"
        before = read_bytes(path)

        def is_validating() -> bool:
            content = read_bytes(path)
            try:
                last = json.loads(content.splitlines()[-1])
            except (ValueError, IndexError):
                return False
            return self._is_due(last) and content != before

        return is_validating

    def _is_due(self, record: dict[str, Any]) -> bool:
        return record["split"] == "train" and record["step"] in self.validated

    def find_place(self, out: Path, left: set[Path], metrics: bytes) -> str:
        checkpoints = [path.name for path in left if path.parent.name == "checkpoints"]
        if any(name.endswith(".old") for name in checkpoints):
            return "between the two renames of a checkpoint"
        if checkpoints:
            return "writing a checkpoint"
        if out / ".model.tmp" in left:
            return "writing the model folder"
        if read_bytes(out / "metrics.jsonl") == metrics:
            return "starting"
        records = read_metrics(out / "metrics.jsonl")
        return "validating" if records and self._is_due(records[-1]) else "elsewhere"


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

    def __call__(self, process: Process) -> bool:
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


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the counts of a checkpoint except for its clocks."""
    return read_stable(checkpoint / "state.json")
