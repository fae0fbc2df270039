"""Text to shards beside `run_mlm.py`.

    MASKWRIGHT_DATA=… python -m benchmarks.preparation_speed [--megabytes 30]

The text is the beginning of English Wikipedia. Each contender is a program of its own, so its start
counts, and takes all cores. Ours cleans, drops what occurred before, splits, encodes, hashes and
writes; theirs (`run_mlm_peer`) tokenizes and cuts blocks. Both have a tokenizer already, the same
one. Memory is the peak of all processes of a contender, shared pages divided among them.
"""

import argparse
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import read_wikipedia, write_result
from benchmarks.processes import measure_peak
from benchmarks.races import divide, race
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer

PROCESSES = os.cpu_count() or 1


def write_text(path: Path, megabytes: float) -> int:
    """The first articles, with blank lines between, as they are in the corpus; their bytes."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for text in read_wikipedia():
            size += file.write(f"{text}\n\n")
            if size >= megabytes * 1e6:
                break
    return path.stat().st_size


def run(command: list[str], out: Path, size: int, peaks: list[int]) -> float:
    """Megabytes a second of a program that writes `out`, which is removed."""
    peak, seconds = measure_peak(command)
    peaks.append(round(peak.proportional / 1e6))
    shutil.rmtree(out)
    return size / 1e6 / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        text, tokenizer, out = scratch / "text.txt", scratch / "tokenizer", scratch / "out"
        size = write_text(text, arguments.megabytes)
        trained = train_tokenizer([text.read_text(encoding="utf-8")], TokenizerConfig())
        trained.save(tokenizer)
        ours = [sys.executable, "-m", "maskwright", "prepare", str(text), "--out", str(out)]
        ours += ["--tokenizer.path", str(tokenizer), "--workers", str(PROCESSES)]
        theirs = [sys.executable, "-m", "benchmarks.run_mlm_peer", str(text), str(tokenizer)]
        theirs += [str(out), "--processes", str(PROCESSES)]
        peaks: dict[str, list[int]] = {"ours": [], "run_mlm": []}
        contenders = {
            "ours": partial(run, ours, out, size, peaks["ours"]),
            "run_mlm": partial(run, theirs, out, size, peaks["run_mlm"]),
        }
        found = race(contenders, arguments.rounds, "MB/s")
    result: dict[str, Any] = {
        "text_bytes": size,
        "processes": PROCESSES,
        "megabytes_per_second": found,
        "ratio": divide(found["ours"], found["run_mlm"]),
        "peak_megabytes": peaks,
        "ratio_of_memory": divide(peaks["ours"], peaks["run_mlm"]),
    }
    print(result["ratio"], result["ratio_of_memory"])
    write_result("preparation-speed", result)


if __name__ == "__main__":
    main()
