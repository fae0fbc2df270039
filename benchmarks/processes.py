"""The memory of a process and all its descendants, from /proc."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_SECONDS = 0.2


@dataclass
class Peak:
    """The highest of each over the time of a process, in bytes.

    Attributes:
        resident: pages in memory, those that processes share counted for each (an upper bound).
        proportional: shared pages divided among those that share them.
        anonymous: pages that are no file's, which cannot be had again from the disk.
    """

    resident: int = 0
    proportional: int = 0
    anonymous: int = 0

    def update(self, root: int) -> None:
        """Looks at the process `root` and its descendants."""
        tree = list_tree(root)
        sums = [sum_rollup(pid) for pid in tree]
        self.resident = max(self.resident, sum(rss for rss, _, _ in sums))
        self.proportional = max(self.proportional, sum(pss for _, pss, _ in sums))
        self.anonymous = max(self.anonymous, sum(anonymous for _, _, anonymous in sums))

    def in_megabytes(self) -> dict[str, int]:
        """For result files."""
        return {f"peak_{name}_megabytes": round(n / 1e6) for name, n in vars(self).items()}


def list_tree(root: int) -> list[int]:
    """The ids of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # ended meanwhile
        children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def sum_rollup(pid: int) -> tuple[int, int, int]:
    """Resident, proportional and anonymous bytes of one process; zeros if it has ended."""
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0, 0
    values = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
    return values["Rss:"], values["Pss:"], values["Anonymous:"]


def measure_peak(command: Sequence[str]) -> tuple[Peak, float]:
    """Runs a command; its peak, looked at five times a second, and its seconds.

    Raises:
        CalledProcessError: the command failed.
    """
    started, peak = time.perf_counter(), Peak()
    process = subprocess.Popen(command)
    while process.poll() is None:
        peak.update(process.pid)
        time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return peak, time.perf_counter() - started
