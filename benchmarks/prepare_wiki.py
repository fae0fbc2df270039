"""Throughput and peak memory of ``maskwright prepare`` on English Wikipedia.

    MASKWRIGHT_DATA=… python -m benchmarks.prepare_wiki

Runs the command as a user would, in a process of its own, and adds up the resident memory of it
and its workers (shared pages counted once for each process, so the sum is an upper bound).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import find_corpus, write_result

_SAMPLE_SECONDS = 0.2


def resident_bytes(root: int) -> int:
    """Resident memory of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    memory: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            pages = int((entry / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue  # ended meanwhile
        pid = int(entry.name)
        children.setdefault(int(fields[1]), []).append(pid)
        memory[pid] = pages * os.sysconf("SC_PAGE_SIZE")
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += memory.get(pid, 0)
        waiting += children.get(pid, [])
    return total


def main() -> None:
    source = find_corpus("wiki_en/wiki_en.train.txt.gz")
    folder = Path(tempfile.mkdtemp(prefix="maskwright-bench-"))
    command = [sys.executable, "-m", "maskwright", "prepare", str(source)]
    command += ["--out", str(folder / "wiki"), "--tokenizer.vocab_size", "8192"]
    started = time.perf_counter()
    process = subprocess.Popen(command)
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident_bytes(process.pid))
        time.sleep(_SAMPLE_SECONDS)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(process.returncode)
    manifest = json.loads((folder / "wiki" / "manifest.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    splits = manifest["splits"]
    num_bytes = sum(split["num_bytes"] for split in splits.values())
    write_result(
        "prepare-wiki_en",
        {
            "vocab_size": manifest["vocab_size"],
            "text_bytes": num_bytes,
            "tokens": sum(split["num_tokens"] for split in splits.values()),
            "seconds": round(seconds, 1),
            "megabytes_per_second": round(num_bytes / 1e6 / seconds, 2),
            "peak_resident_megabytes": round(peak / 1e6),
        },
    )


if __name__ == "__main__":
    main()
