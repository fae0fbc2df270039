"""A program in a process group of its own, and the moment at which it is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MASKWRIGHT = (sys.executable, "-m", "maskwright")
PATIENCE_SECONDS = 600.0  # no attempt of these small runs takes nearly as long
_POLL_SECONDS = 0.0002

# Waits for its moment; False if the process ended before.
Moment = Callable[["subprocess.Popen[bytes]"], bool]


@dataclass(frozen=True)
class Attempt:
    """What became of one process: `code` is the exit code, or minus the signal that killed it."""

    code: int
    output: str
    seconds: float
    seconds_to_exit: float

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


def attempt(
    arguments: Sequence[str],
    moment: Moment,
    log: Path,
    number: signal.Signals = signal.SIGKILL,
) -> Attempt:
    """Runs ``maskwright ARGUMENTS`` and sends it `number` when `moment` has come.

    SIGKILL goes to the whole process group, as a machine that is switched off would spare no
    worker; any other signal to the process itself, as a scheduler sends it.
    """
    started = time.perf_counter()
    with log.open("wb") as file:
        # A shell that starts us in the background has SIGINT ignored, which children inherit.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [*MASKWRIGHT, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # the other cores are for whoever kills it
        )
        signal.signal(signal.SIGINT, before)
    try:
        came = moment(process)
        sent = time.perf_counter()
        if came and number == signal.SIGKILL:
            os.killpg(process.pid, number)
        elif came:
            process.send_signal(number)
        code = process.wait(PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    ended = time.perf_counter()
    output = log.read_text(encoding="utf-8", errors="replace")
    return Attempt(code, output, ended - started, ended - sent)


def never(process: "subprocess.Popen[bytes]") -> bool:
    """The process is left alone."""
    process.wait(PATIENCE_SECONDS)
    return False


def after(seconds: float) -> Moment:
    """So many seconds after the start."""

    def wait(process: "subprocess.Popen[bytes]") -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    return wait


def when(condition: Callable[[], bool], seconds: float = 0.0) -> Moment:
    """So many seconds after `condition` has become true."""

    def wait(process: "subprocess.Popen[bytes]") -> bool:
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while not condition():
            if process.poll() is not None or time.perf_counter() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        at = time.perf_counter() + seconds
        while time.perf_counter() < at:  # sleeping is not that exact
            pass
        return True

    return wait


def list_names(folder: Path, prefix: str = "") -> set[str]:
    """The names in a folder that begin so; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.name.startswith(prefix)}
    except FileNotFoundError:
        return set()


Entry = tuple[Path, int, int]


def list_temporary(*folders: Path) -> set[Entry]:
    """What has a temporary name in these folders, with what tells it from one that comes later."""
    found: set[Entry] = set()
    for folder in folders:
        for name in list_names(folder, "."):
            with suppress(FileNotFoundError):  # it has its final name by now
                about = (folder / name).stat()
                found.add((folder / name, about.st_ino, about.st_mtime_ns))
    return found


def appearing(folder: Path, prefix: str, skip: int = 0) -> Callable[[], bool]:
    """Whether more than `skip` temporary names that begin so have appeared in a folder since now.

    What an earlier process has left there does not count.
    """
    before, seen = list_temporary(folder), set[Path]()

    def has_appeared() -> bool:
        seen.update(path for path, *_ in list_temporary(folder) - before)
        return sum(path.name.startswith(prefix) for path in seen) > skip

    return has_appeared


def deal_aims(draw: random.Random, aims: Mapping[str, int]) -> Iterator[str]:
    """Each aim as many times as it says, in another order every time, without end."""
    while True:
        deck = [aim for aim, times in aims.items() for _ in range(times)]
        draw.shuffle(deck)
        yield from deck
