"""Every engine of `prepare`, one of its workers killed, beside the local one: the same bytes?

    MASKWRIGHT_DATA=… python -m benchmarks.engines [--megabytes 40]

English Wikipedia with a selection, on two workers of this machine. A process that works is killed
when the first shard is there; what is compared is the sha256 of every file of the folder.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import read_wikipedia, write_result
from maskwright.files import hash_file
from maskwright.preparation.folder import TASKS_NAME
from tests.preparation.cluster.helpers import prepare_and_kill

SETTINGS = ["--shard_megabytes", "1", "--workers", "2", "--tokenizer.vocab_size", "8192"]
SELECTION = ["--select.quality", "true", "--select.near_duplicates", "0.8"]
CLUSTER = ["--cluster.tasks", "2", "--cluster.memory_gigabytes", "1"]
KILLED = {"datatrove-local": TASKS_NAME, "datatrove-ray": "ray::RankWorker"}  # by these words


def write_text(path: Path, megabytes: float) -> None:
    """So much of English Wikipedia, articles apart by blank lines."""
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        for text in read_wikipedia():
            num_bytes += len(text.encode()) + file.write("\n\n")
            file.write(text.replace("\n\n", "\n"))
            if num_bytes >= megabytes * 1e6:
                return


def hash_folder(folder: Path) -> dict[str, str]:
    """The sha256 of every file below it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=40)
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="maskwright-engines-") as name:
        folder = Path(name)
        text = folder / "text.txt"
        write_text(text, arguments.megabytes)
        common = [str(text), *SETTINGS, *SELECTION]
        command = [sys.executable, "-m", "maskwright", "prepare", *common]
        began = time.perf_counter()
        subprocess.run([*command, "--out", str(folder / "local")], check=True)
        seconds = {"local": time.perf_counter() - began}
        expected = hash_folder(folder / "local")
        for engine, words in KILLED.items():
            out = folder / engine
            given = [*common, "--out", str(out), "--engine", engine, *CLUSTER]
            began = time.perf_counter()
            lines, num_done = prepare_and_kill(given, words)
            seconds[engine] = time.perf_counter() - began
            found[engine] = {
                "shards_done_when_a_worker_was_killed": num_done,
                "handed_out_again": sum("handed out again" in line for line in lines),
                "files_equal": hash_folder(out) == expected,
            }
            print(engine, found[engine], flush=True)
    shards = sum(name.endswith(".tokens") for name in expected)
    result = {"megabytes": arguments.megabytes, "files": len(expected), "shards": shards}
    result["seconds"] = {engine: round(taken, 1) for engine, taken in seconds.items()}
    write_result("engines", {**result, "engines": found})
    if not all(one["files_equal"] for one in found.values()):
        sys.exit("an engine has made something else")


if __name__ == "__main__":
    main()
