"""One small preparation, undisturbed and killed again and again: is every byte the same?"""

import random
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.crash.killing import (
    Attempt,
    Moment,
    after,
    appearing,
    attempt,
    list_names,
    list_temporary,
    never,
    when,
)
from benchmarks.crash.text import write_text

_STAGES = ("beginning", "tokenizer", "shards", "end", "anywhere")


@dataclass
class Tally:
    """What happened, over all preparations."""

    kills: Counter[str] = field(default_factory=Counter[str])
    preparations: int = 0
    differences: list[str] = field(default_factory=list[str])


class Preparations:
    """The same text prepared below `folder` any number of times, by two workers.

    Args:
        folder: an empty folder to work in.
        megabytes: of text; a shard holds one.
    """

    def __init__(self, folder: Path, megabytes: float = 6.5) -> None:
        self.folder, self.whole = folder, folder / "whole"
        self.text = write_text(folder / "text.txt", megabytes)
        self.tally = Tally()
        done = self.go_on(self.whole)
        if done.code:
            raise SystemExit(f"the undisturbed preparation failed:\n{done.output}")
        self.seconds = done.seconds

    def go_on(
        self, out: Path, moment: Moment = never, number: signal.Signals = signal.SIGKILL
    ) -> Attempt:
        """Prepares into `out`, or continues there."""
        arguments = ["prepare", str(self.text), "--out", str(out), "--workers", "2"]
        arguments += ["--shard_megabytes", "1", "--tokenizer.vocab_size", "1024"]
        return attempt(arguments, moment, self.folder / f"{out.name}.log", number)

    def kill(self, kills: int, seed: int = 0) -> Tally:
        """Preparations that are killed `kills` times in all, each until it ends."""
        draw = random.Random(seed)
        while self.tally.kills.total() < kills:
            self.tally.preparations += 1
            out = self.folder / f"killed-{self.tally.preparations}"
            self._kill_until_it_ends(out, kills, draw)
            self.tally.differences += self.compare(out)
            shutil.rmtree(out)
        return self.tally

    def _kill_until_it_ends(self, out: Path, kills: int, draw: random.Random) -> None:
        while True:
            enough = self.tally.kills.total() >= kills
            stage = _STAGES[self.tally.kills.total() % len(_STAGES)]
            folders = (out, out / "train", out / "valid")
            before = list_temporary(*folders)
            done = self.go_on(out, never if enough else self.aim(out, stage, draw))
            if done.was_killed:
                left = {path for path, *_ in list_temporary(*folders) - before}
                self.tally.kills[find_place(out, left)] += 1
            elif done.code:
                raise SystemExit(f"{out.name} ended with exit code {done.code}:\n{done.output}")
            else:
                return

    def aim(self, out: Path, stage: str, draw: random.Random) -> Moment:
        """The moment for a kill that is to hit a stage; never, if that stage is over."""
        begun, has_tokenizer = out.exists(), (out / "tokenizer").exists()
        if stage == "beginning":
            return never if begun else when(out.exists, draw.uniform(0, 0.01))
        if stage == "tokenizer":
            wait = draw.uniform(0, 0.3 * self.seconds)
            return never if has_tokenizer else when((out / "preparing.json").exists, wait)
        if stage == "shards":
            return when(appearing(out / "train", "."), draw.uniform(0, 0.01))
        if stage == "end":
            return when(appearing(out, ".unigram"), draw.uniform(0, 0.01))
        return after(draw.uniform(0, self.seconds))

    def compare(self, out: Path) -> list[str]:
        """How an ended preparation differs from the undisturbed one, in words."""
        found: list[str] = []
        expected, there = list_files(self.whole), list_files(out)
        for name in sorted(expected ^ there):
            found.append(f"{out.name} {'lacks' if name in expected else 'still holds'} {name}")
        for name in sorted(expected & there):
            if (out / name).read_bytes() != (self.whole / name).read_bytes():
                found.append(f"{out.name}: {name} differs")
        return found


def list_files(folder: Path) -> set[str]:
    """Every file below a folder, hidden ones, too."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths}


def find_place(out: Path, left: set[Path]) -> str:
    """Where a killed preparation was, which has left `left` under temporary names."""
    if any(path.parent != out for path in left):
        return "writing a shard"
    if left:
        return f"writing {min(left).name.removeprefix('.').removesuffix('.tmp')}"
    if (out / "manifest.json").is_file():
        return "tidying up, or over"
    if list_names(out / "train"):
        return "between shards"
    if (out / "tokenizer").is_dir():
        return "starting to encode"
    if (out / "preparing.json").is_file():
        return "training the tokenizer"
    return "starting"
