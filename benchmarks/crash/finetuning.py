"""One small fine-tuning, undisturbed and killed again and again: are model and scores the same?"""

import json
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
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
    list_temporary,
    never,
    when,
)
from benchmarks.crash.pretraining import Tally
from benchmarks.crash.text import write_text
from maskwright.logs import read_metrics

PRETRAIN = [
    "--tokenizer.vocab_size", "512", "--corpus.valid_fraction", "0.1",
    "--data.max_seq_length", "64", "--model.hidden_size", "64", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "96",
    "--train.batch_tokens", "1024", "--train.compile", "off", "--train.max_steps", "20",
    "--train.valid_tokens", "2048", "--train.final_valid_tokens", "2048", "--train.report", "false",
]  # fmt: skip
# Of ten kills.
AIMS = {"seed": 4, "checkpoint": 2, "control": 1, "model": 1, "start": 1, "anywhere": 1}
_CLOCKS = ("seconds",)


class FinetuningRuns:
    """The same fine-tuning below `folder` any number of times.

    Args:
        folder: an empty folder to work in.
        seeds: of the run; its random encoder has as many.
        examples: to train on.
    """

    def __init__(self, folder: Path, seeds: int = 3, examples: int = 400) -> None:
        self.folder, self.whole, self.seeds = folder, folder / "whole", seeds
        text = write_text(folder / "text.txt", 0.3)
        pretrain = [*MASKWRIGHT, "pretrain", str(text), *PRETRAIN, "--name", "model"]
        folders = ["--runs-dir", str(folder), "--data-dir", str(folder / "data")]
        subprocess.run([*pretrain, *folders], check=True, capture_output=True)
        words = text.read_text(encoding="utf-8").split()
        for name, count in (("train.tsv", examples), ("test.tsv", 100)):
            write_examples(folder / name, words, count)
        self.tally = Tally()
        done = self.go_on(self.whole)
        if done.code:
            raise SystemExit(f"the undisturbed run failed:\n{done.output}")
        self.seconds = done.seconds

    def go_on(
        self, out: Path, moment: Moment = never, number: signal.Signals = signal.SIGKILL
    ) -> Attempt:
        """Gives the command again, or the flag --resume every other time."""
        arguments = ["finetune", str(self.folder / "model"), "--task", "classification"]
        arguments += ["--train", str(self.folder / "train.tsv"), "--control", "--epochs", "4"]
        arguments += ["--test", str(self.folder / "test.tsv"), "--seeds", str(self.seeds)]
        arguments += ["--learning_rate", "0.003", "--device", "cpu", "--out", str(out)]
        if self.tally.kills.total() % 2 and (out / "provenance.json").exists():
            arguments = ["finetune", "--resume", str(out)]
        return attempt(arguments, moment, self.folder / f"{out.name}.log", number)

    def kill(self, kills: int, seed: int = 0) -> Tally:
        """Runs that are killed `kills` times in all, each until it ends; all are compared."""
        draw = random.Random(seed)
        aims = deal_aims(draw, AIMS)
        while self.tally.kills.total() < kills:
            self.tally.runs += 1
            out = self.folder / f"killed-{self.tally.runs}"
            self._kill_until_it_ends(out, kills, aims, draw)
            self.tally.differences += self.compare(out)
            shutil.rmtree(out)
        return self.tally

    def _kill_until_it_ends(
        self, out: Path, kills: int, aims: Iterator[str], draw: random.Random
    ) -> None:
        while True:
            has_seeds = any((out / "checkpoints").glob("step_*"))
            self.tally.resumed += has_seeds
            self.tally.started_again += out.exists() and not has_seeds
            enough = self.tally.kills.total() >= kills
            folders = (out, out / "checkpoints", out / "checkpoints" / "control")
            before = list_temporary(*folders)
            moment = never if enough else self.aim(out, next(aims), draw)
            done = self.go_on(out, moment)
            if done.was_killed:
                left = {path for path, *_ in list_temporary(*folders) - before}
                self.tally.kills[find_place(out, left)] += 1
            elif done.code:
                raise SystemExit(f"{out.name} ended with exit code {done.code}:\n{done.output}")
            else:
                return

    def aim(self, out: Path, aim: str, draw: random.Random) -> Moment:
        """The moment for a kill that is to hit what `aim` names."""
        if aim == "seed":
            return when(self.has_more_records(out, draw.randint(1, 12)), draw.uniform(0, 0.05))
        if aim == "checkpoint":
            return when(appearing(out / "checkpoints", ".step_"), draw.uniform(0, 0.01))
        if aim == "control":
            return when(appearing(out / "checkpoints" / "control", ".step_"), draw.uniform(0, 0.01))
        if aim == "model":
            return when(appearing(out, ".model.tmp"), draw.uniform(0, 0.02))
        if aim == "start" and not out.exists():
            return when(out.exists, draw.uniform(0, 0.5))
        return after(draw.uniform(0, self.seconds))

    def has_more_records(self, out: Path, count: int) -> Callable[[], bool]:
        """Whether a run has trained since now: `count` records beyond those of kept seeds."""
        state = max((out / "checkpoints").glob("step_*/state.json"), default=None)
        runs = json.loads(state.read_text(encoding="utf-8"))["runs"] if state else []
        kept = sum(len(run["history"]) for run in runs)
        path = out / "metrics.jsonl"
        inode = path.stat().st_ino if path.exists() else None

        def has_trained() -> bool:
            is_new = path.exists() and path.stat().st_ino != inode
            return is_new and len(read_metrics(path)) >= kept + count

        return has_trained

    def compare(self, out: Path) -> list[str]:
        """How an ended run differs from the undisturbed one, in words; clocks may differ."""
        found: list[str] = []
        expected, there = (
            {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
            for run in (self.whole, out)
        )
        for name in sorted(expected ^ there):
            found.append(f"{out.name} {'lacks' if name in expected else 'still holds'} {name}")
        for name in sorted(expected & there):
            if name.name in ("provenance.json", "report.html"):  # say when and where it ran
                continue
            if read_file(out / name) != read_file(self.whole / name):
                found.append(f"{out.name}: {name} differs")
        return found


def write_examples(path: Path, words: list[str], count: int) -> None:
    """Texts that are long or short, which is their label, but for every tenth."""
    draw = random.Random(path.name)
    lines = ["sentence1\tlabel"]
    for number in range(count):
        start, length = draw.randrange(len(words) - 40), draw.randint(2, 30)
        is_long = (length > 15) != (number % 10 == 0)
        lines.append(f"{' '.join(words[start : start + length])}\t{'long' if is_long else 'short'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_file(path: Path) -> Any:
    """What must be the same: bytes, or of scores all values but the clocks."""
    if path.suffix == ".jsonl":
        return without_clocks(read_metrics(path))
    if path.name == "results.json":
        return without_clocks(json.loads(path.read_text(encoding="utf-8")))
    return path.read_bytes()


def without_clocks(value: Any) -> Any:
    """A value without the times that are somewhere in it."""
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in _CLOCKS}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value


def find_place(out: Path, left: set[Path]) -> str:
    """Where a killed run was, which has left `left` under temporary names."""
    if any(path.parent != out for path in left):
        return "writing a checkpoint"
    if out / ".model.tmp" in left:
        return "writing the model folder"
    if left:
        return "writing another file"
    if not (out / "provenance.json").exists():
        return "reading the examples"
    if not (out / "checkpoints").exists():
        return "over" if (out / "model").is_dir() else "in the first seed"
    return "in the control" if (out / "model").is_dir() else "in a later seed"
