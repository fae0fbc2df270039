"""Start-up of ``maskwright --help``: wall-clock of a fresh process, several times.

python -m benchmarks.startup
"""

import statistics
import subprocess
import sys
import time

from benchmarks.common import write_result

_RUNS = 15


def main() -> None:
    seconds: list[float] = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "maskwright", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        seconds.append(time.perf_counter() - started)
    median, longest = statistics.median(seconds), max(seconds)
    write_result(
        "startup",
        {"runs": _RUNS, "median_seconds": round(median, 3), "longest_seconds": round(longest, 3)},
    )


if __name__ == "__main__":
    main()
