"""A small fine-tuning of which model and scores must be the same."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from benchmarks.common import run_maskwright
from maskwright.logs import read_metrics
from tests.reliability.crash.job import Job
from tests.reliability.crash.killing import Moment, after, appearing, when, write_text
from tests.reliability.crash.pretraining import SMALL_DATA, TINY

PRETRAIN = [
    *SMALL_DATA, *TINY, "--train.batch_tokens", "1024", "--train.max_steps", "20",
    "--train.valid_tokens", "2048", "--train.final_valid_tokens", "2048", "--train.report", "false",
]  # fmt: skip
_UNLIKE = ("provenance.json", "report.html")  # say when and where a run was
_STOP_AFTER = 3  # scores beyond those that are kept


class FinetuningRuns(Job):
    """The same fine-tuning with a random encoder beside it.

    Args:
        folder: an empty folder to work in.
        seeds: of the run; its random encoder has as many.
        examples: to train on.
    """

    aims: ClassVar = {
        "seed": 4, "checkpoint": 2, "control": 1, "model": 1, "start": 1, "anywhere": 1
    }  # fmt: skip

    def __init__(self, folder: Path, seeds: int = 3, examples: int = 400) -> None:
        super().__init__(folder)
        self.seeds = seeds
        text = write_text(folder / "text.txt", 0.3)
        where = ("--name", "model", "--runs-dir", folder, "--data-dir", folder / "data")
        run_maskwright("pretrain", text, *PRETRAIN, *where)
        words = text.read_text(encoding="utf-8").split()
        for name, count in (("train.tsv", examples), ("test.tsv", 100)):
            write_examples(folder / name, words, count)
        self.seconds = self.run_whole().seconds

    def list_arguments(self, out: Path) -> list[str]:
        """Return the command again, or the flag --resume every other time."""
        if self.tally.kills.total() % 2 and (out / "provenance.json").exists():
            return ["finetune", "--resume", str(out)]
        arguments = ["finetune", str(self.folder / "model"), "--task", "classification"]
        arguments += ["--train", str(self.folder / "train.tsv"), "--control", "--epochs", "4"]
        arguments += ["--test", str(self.folder / "test.tsv"), "--seeds", str(self.seeds)]
        return [*arguments, "--learning_rate", "0.003", "--device", "cpu", "--out", str(out)]

    def list_folders(self, out: Path) -> tuple[Path, ...]:
        kept = out / "checkpoints"
        return out, kept, kept / "control", kept / "seed", kept / "control" / "seed"

    def is_resumable(self, out: Path) -> bool:
        return any((out / "checkpoints").rglob("step_*")) or (out / "model").is_dir()

    def list_files(self, out: Path) -> set[str]:
        return {name for name in super().list_files(out) if Path(name).name not in _UNLIKE}

    def aim(self, out: Path, aim: str, draw: random.Random) -> Moment:
        if aim == "seed":
            return when(self.has_more_records(out, draw.randint(1, 12)), draw.uniform(0, 0.05))
        if aim in ("checkpoint", "control"):
            folder = self.list_folders(out)[1 if aim == "checkpoint" else 2]
            return when(appearing(folder, ".step_"), draw.uniform(0, 0.01))
        if aim == "model":
            return when(appearing(out, ".model.tmp"), draw.uniform(0, 0.02))
        if aim == "start" and not out.exists():
            return when(out.exists, draw.uniform(0, 0.5))
        return after(draw.uniform(0, self.seconds))

    def aim_stop(self, out: Path, number: int, draw: random.Random) -> Moment:
        return when(self.has_more_records(out, _STOP_AFTER))

    def has_more_records(self, out: Path, count: int) -> Callable[[], bool]:
        """Return a test for `count` records beyond those of the seeds that are kept now."""
        state = max((out / "checkpoints").glob("step_*/state.json"), default=None)
        runs = json.loads(state.read_text(encoding="utf-8"))["runs"] if state else []
        for stopped in (out / "checkpoints").glob("seed/step_*/state.json"):
            runs.append(json.loads(stopped.read_text(encoding="utf-8"))["result"])
        kept = sum(len(run["history"]) for run in runs)
        path = out / "metrics.jsonl"
        inode = path.stat().st_ino if path.exists() else None

        def has_trained() -> bool:
            is_new = path.exists() and path.stat().st_ino != inode
            return is_new and len(read_metrics(path)) >= kept + count

        return has_trained

    def find_place(self, out: Path, left: set[Path], metrics: bytes) -> str:
        if any(path.parent != out for path in left):
            return "writing a checkpoint"
        if left:
            return f"writing {'the model folder' if out / '.model.tmp' in left else 'another file'}"
        if not (out / "provenance.json").exists():
            return "reading the examples"
        has_model = (out / "model").is_dir()
        if not (out / "checkpoints").exists():
            return "over" if has_model else "in the first seed"
        return "in the control" if has_model else "in a later seed"


def write_examples(path: Path, words: list[str], count: int) -> None:
    """Write texts that are long or short, which is their label except for every tenth."""
    draw = random.Random(path.name)
    lines = ["sentence1\tlabel"]
    for number in range(count):
        start, length = draw.randrange(len(words) - 40), draw.randint(2, 30)
        is_long = (length > 15) != (number % 10 == 0)
        lines.append(f"{' '.join(words[start : start + length])}\t{'long' if is_long else 'short'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
