"""One small job, undisturbed and killed or stopped again and again: does it end alike?"""

import json
import random
import re
import shutil
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.common import MASKWRIGHT
from maskwright.logs import read_metrics
from tests.reliability.crash.killing import (
    Attempt,
    Moment,
    Process,
    attempt,
    list_temporary,
    never,
    start,
)

CLOCKS = re.compile("seconds?$")


@dataclass
class Tally:
    """The counts over all runs of a job."""

    kills: Counter[str] = field(default_factory=Counter[str])
    runs: int = 0
    resumed: int = 0
    started_again: int = 0
    unreadable_checkpoints: int = 0
    differences: list[str] = field(default_factory=list[str])


class Job(ABC):
    """The same job below `folder` any number of times; its undisturbed run is ``whole``.

    Attributes:
        aims: the kills aimed at each place, in turns of all of them.
    """

    aims: ClassVar[dict[str, int]]

    def __init__(self, folder: Path) -> None:
        self.folder, self.whole, self.tally = folder, folder / "whole", Tally()

    def start(self, command: list[str], log: Path) -> Process:
        """Start a program whose output goes to a file."""
        return start(command, log)

    @abstractmethod
    def list_arguments(self, out: Path) -> list[str]:
        """Return the command that starts or resumes the job."""

    @abstractmethod
    def list_folders(self, out: Path) -> tuple[Path, ...]:
        """Return the folders in which the job writes under temporary names."""

    @abstractmethod
    def is_resumable(self, out: Path) -> bool:
        """Return True if the job has kept a part of its work."""

    @abstractmethod
    def aim(self, out: Path, aim: str, draw: random.Random) -> Moment:
        """Return the moment for a kill at the place that `aim` names."""

    @abstractmethod
    def aim_stop(self, out: Path, number: int, draw: random.Random) -> Moment:
        """Return the moment for the stop of this number."""

    @abstractmethod
    def find_place(self, out: Path, left: set[Path], metrics: bytes) -> str:
        """Return the place at which a process was killed.

        Args:
            left: the paths that it has left under temporary names.
            metrics: the content of ``metrics.jsonl`` when it began.
        """

    def list_files(self, out: Path) -> set[str]:
        """Return the files that must be the same; by default all."""
        return {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}

    def check_stopped(self, out: Path, done: Attempt) -> Iterator[str]:
        """Yield what is wrong with a job that was stopped by a signal."""
        yield from ()

    def run_whole(self, moment: Moment = never) -> Attempt:
        """Run the job undisturbed."""
        done = self.go_on(self.whole, moment)
        if done.code:
            raise SystemExit(f"the undisturbed run failed:\n{done.output}")
        return done

    def go_on(
        self, out: Path, moment: Moment = never, number: signal.Signals = signal.SIGKILL
    ) -> Attempt:
        """Start or resume the job and send it a signal at `moment`."""
        log = self.folder / f"{out.name}.log"
        process = self.start([*MASKWRIGHT, *self.list_arguments(out)], log)
        return attempt(process, moment, log, number)

    def kill(self, kills: int, seed: int = 0) -> Tally:
        """Kill runs, each until it ends, `kills` times in all; compare all of them."""
        draw = random.Random(seed)
        aims = self._deal_aims(draw)
        while self.tally.kills.total() < kills:
            self.tally.runs += 1
            out = self.folder / f"killed-{self.tally.runs}"
            while self._attempt(out, kills, aims, draw):
                pass
            self.tally.differences += self.compare(out)
            shutil.rmtree(out)
        return self.tally

    def _deal_aims(self, draw: random.Random) -> Iterator[str]:
        while True:
            deck = [aim for aim, times in self.aims.items() for _ in range(times)]
            draw.shuffle(deck)
            yield from deck

    def _attempt(self, out: Path, kills: int, aims: Iterator[str], draw: random.Random) -> bool:
        """Start or resume a run and kill it, unless there were enough kills; False at its end."""
        had_part = self.is_resumable(out)
        self.tally.resumed += had_part
        self.tally.started_again += out.exists() and not had_part
        enough = self.tally.kills.total() >= kills
        moment = never if enough else self.aim(out, next(aims), draw)
        before, metrics = list_temporary(*self.list_folders(out)), read_bytes(out / "metrics.jsonl")
        done = self.go_on(out, moment)
        self.tally.unreadable_checkpoints += done.output.count("warning:")
        if done.was_killed:
            if had_part and not self.is_resumable(out):
                self.tally.differences.append(f"{out.name} has lost its checkpoints")
            left = {path for path, *_ in list_temporary(*self.list_folders(out)) - before}
            self.tally.kills[self.find_place(out, left, metrics)] += 1
        elif done.code:
            raise SystemExit(f"{out.name} ended with exit code {done.code}:\n{done.output}")
        return done.was_killed

    def stop(self, number: signal.Signals, stops: int, seed: int = 0) -> dict[str, Any]:
        """Stop one run by a signal again and again, then let it end.

        Returns:
            ``seconds`` from each signal to the exit; ``differences`` in words.
        """
        draw, out = random.Random(seed), self.folder / f"stopped-{number.name}"
        seconds, found, done = list[float](), list[str](), None
        while len(seconds) < stops:
            done = self.go_on(out, self.aim_stop(out, len(seconds), draw), number)
            if done.code not in (128 + number, -number):
                break
            seconds.append(done.seconds_to_exit)
            found += [f"{number.name}: {wrong}" for wrong in self.check_stopped(out, done)]
        else:
            done = self.go_on(out)
        if done.code:
            raise SystemExit(f"after {len(seconds)} stops: exit code {done.code}:\n{done.output}")
        found += self.compare(out)
        shutil.rmtree(out)
        return {"seconds": seconds, "differences": found}

    def compare(self, out: Path) -> list[str]:
        """Return how an ended run differs from the undisturbed one; clocks may differ."""
        expected, there = self.list_files(self.whole), self.list_files(out)
        return [
            *(f"{out.name} lacks {name}" for name in sorted(expected - there)),
            *(f"{out.name} still holds {name}" for name in sorted(there - expected)),
            *(
                f"{out.name}: {name} differs"
                for name in sorted(expected & there)
                if read_stable(out / name) != read_stable(self.whole / name)
            ),
        ]


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; nothing if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:  # not there yet, or being replaced
        return b""


def read_stable(path: Path) -> Any:
    """Return what two runs must have in common: bytes, or records without their clocks."""
    if path.suffix == ".jsonl":
        return without_clocks(read_metrics(path))
    if path.name in ("results.json", "state.json"):
        return without_clocks(json.loads(path.read_text(encoding="utf-8")))
    return path.read_bytes()


def without_clocks(value: Any) -> Any:
    """Return a value without the times anywhere in it."""
    if isinstance(value, dict):
        pairs = value.items()
        return {name: without_clocks(one) for name, one in pairs if not CLOCKS.search(name)}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value
