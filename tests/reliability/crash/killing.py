"""A program in a process group of its own, and the moment at which it is killed."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.forked import Forked

PATIENCE_SECONDS = 600.0  # no attempt of these small runs takes nearly as long
_POLL_SECONDS = 0.0002
_SYLLABLES = ("ka", "to", "mi", "ren", "su", "lo", "vi", "nar", "pe", "dol", "ghi", "us", "an", "e")
_NUM_WORDS, _NUM_FOLLOWERS = 1500, 12

Process = subprocess.Popen[bytes] | Forked
# Waits for a moment; returns False if the process ended before.
Moment = Callable[[Process], bool]


@dataclass(frozen=True)
class Attempt:
    """The end of one process: `code` is the exit code, or minus the signal that killed it."""

    code: int
    output: str
    seconds: float
    seconds_to_exit: float

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


def start(command: list[str], log: Path) -> Process:
    """Start a program in a session of its own, whose output goes to a file."""
    with log.open("wb") as file:
        # A shell that starts us in the background has SIGINT ignored, which children inherit.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
        )
        signal.signal(signal.SIGINT, before)
    return process


def attempt(
    process: Process, moment: Moment, log: Path, number: signal.Signals = signal.SIGKILL
) -> Attempt:
    """Send a process that was started just now the signal `number` at `moment`.

    SIGKILL goes to the whole process group, as a power cut would spare no worker; any other signal
    goes to the process itself, as a scheduler sends it.
    """
    started = time.perf_counter()
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


def never(process: Process) -> bool:
    """Leave the process alone."""
    process.wait(PATIENCE_SECONDS)
    return False


def after(seconds: float) -> Moment:
    """Return the moment these seconds after the start."""

    def wait(process: Process) -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    return wait


def when(condition: Callable[[], bool], seconds: float = 0.0) -> Moment:
    """Return the moment these seconds after `condition` has become true."""

    def wait(process: Process) -> bool:
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
    """Return the names in a folder with this prefix; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.name.startswith(prefix)}
    except FileNotFoundError:
        return set()


Entry = tuple[Path, int, int]


def list_temporary(*folders: Path) -> set[Entry]:
    """Return the paths with a temporary name, with inode and time, which a later one changes."""
    found: set[Entry] = set()
    for folder in folders:
        for name in list_names(folder, "."):
            with suppress(FileNotFoundError):  # it has its final name by now
                about = (folder / name).stat()
                found.add((folder / name, about.st_ino, about.st_mtime_ns))
    return found


def appearing(folder: Path, prefix: str, skip: int = 0) -> Callable[[], bool]:
    """Return a test for more than `skip` new temporary names with this prefix in a folder.

    The leftovers of an earlier process do not count.
    """
    before, seen = list_temporary(folder), set[Path]()

    def has_appeared() -> bool:
        seen.update(path for path, *_ in list_temporary(folder) - before)
        return sum(path.name.startswith(prefix) for path in seen) > skip

    return has_appeared


def write_text(path: Path, megabytes: float, seed: int = 0) -> Path:
    """Write invented text in which every word prefers some words after it; return `path`."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(_NUM_WORDS)]
    followers = [draw.choices(words, k=_NUM_FOLLOWERS) for _ in words]
    index = {word: number for number, word in enumerate(words)}
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        while num_bytes < megabytes * 1e6:
            word, text = draw.choice(words), list[str]()
            for _ in range(draw.randint(5, 150)):
                text.append(word)
                word = draw.choice(followers[index[word]])
            num_bytes += file.write(" ".join(text) + ".\n\n")
    return path
