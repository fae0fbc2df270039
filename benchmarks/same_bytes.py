"""Check that every engine writes the same bytes, with any number of tasks and after kills.

Each engine prepares English Wikipedia, with copies, near copies and articles held out by name, with
1 to 64 tasks. Then a task, the coordinator and a node are killed during a run (SIGKILL), and the
same command resumes it. The sha256 over all files must be the same for all prepared folders. Ray
and Slurm are real clusters of two nodes on this machine, which needs root; an engine that is not
installed is skipped.
"""

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import read_wikipedia, write_articles, write_result
from maskwright.files import hash_file
from tests.preparation.clusters import Engine, find_missing, start_engine, until

ENGINES = ("local", "datatrove-local", "datatrove-ray", "datatrove-slurm")
TASKS = ("1", "2", "3", "8", "64")
SETTINGS = [
    "--select.near_duplicates", "0.8", "--select.repair", "true", "--block_megabytes", "1",
    "--tokenizer.vocab_size", "2048", "--cluster.memory_gigabytes", "1",
    "--cluster.partition", "cpu",
]  # fmt: skip
_SUBREAPER = 36  # of prctl: orphans become children of this process


def write_input(folder: Path, megabytes: float) -> list[str]:
    """Write the text; return the arguments that name it."""
    text, more, valid = (folder / name for name in ("text.txt", "more.jsonl", "valid.txt"))
    number, _ = write_articles(text, read_wikipedia(), megabytes)
    with more.open("w") as lines, valid.open("w") as held_out:
        for place, article in enumerate(islice(read_wikipedia(), number)):
            words = article.split(" ")
            if place % 20 == 10:
                words[7::80] = ["changed"] * len(words[7::80])
            if place % 10 == 0:
                lines.write(json.dumps({"text": " ".join(words)}) + "\n")
            if place % 100 == 5:
                held_out.write(article + "\n\n")
    return [str(text), str(more), "--corpus.valid_text", str(valid), *SETTINGS]


def hash_folder(folder: Path) -> str:
    """Return the sha256 over the names and the content of all files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{path.relative_to(folder)} {hash_file(path)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def compare(engine: Engine, scratch: Path, text: list[str], digests: list[str]) -> dict[str, Any]:
    """Prepare the text in all ways; add the digests of the results; return the figures."""
    victims, seconds, differences = list(filter(None, engine.codes)), dict[str, float](), 0
    runs = [(number, [engine.option, number], "") for number in TASKS]
    if "node" in victims:
        runs += [("2 of 2 cores", [engine.option, "2", "--cluster.cores", "2"], "")]
    runs += [(f"{victim} killed", [engine.option, "8"], victim) for victim in victims]
    for label, arguments, victim in runs:
        began = time.perf_counter()
        codes = engine.prepare(scratch / "out", [*text, *arguments], victim)
        seconds[label] = round(time.perf_counter() - began, 1)
        digests.append(hash_folder(scratch / "out"))
        shutil.rmtree(scratch / "out")
        is_same = digests[-1] == digests[0] and codes == engine.codes[victim]
        differences += not is_same
        found = f"{digests[-1][:12]}, exit codes {codes}" + " DIFFERENT" * (not is_same)
        print(f"{engine.name:<15} {label:<18} {seconds[label]:>6} s  {found}", flush=True)
    return {"runs": len(runs), "kills": victims, "differences": differences, "seconds": seconds}


def find_versions() -> dict[str, str]:
    """Return the versions of what does the work."""
    packages = {"datatrove", "ray"} - set(find_missing("datatrove-ray").split(" and "))
    found = {package: version(package) for package in sorted(packages)}
    if not find_missing("datatrove-slurm"):
        found["slurm"] = subprocess.check_output(["slurmctld", "-V"], text=True).strip()
    return found


def is_alone() -> bool:
    """Return True if all children of this process have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return True
    return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the engines and the size of the text."""
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--megabytes", type=float, default=24, help="megabytes of text [24]")


def main(arguments: argparse.Namespace) -> None:
    """Prepare with all engines that are installed; write what was found."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clusters are taken down
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    engines, digests = dict[str, Any](), list[str]()
    with tempfile.TemporaryDirectory(prefix="bytes-") as folder:
        text = write_input(Path(folder), arguments.megabytes)
        for name in arguments.engines:
            if missing := find_missing(name):
                print(f"{name}: skipped, needs {missing}")
                continue
            scratch = Path(tempfile.mkdtemp(dir=folder))
            with start_engine(name, scratch) as engine:
                engines[name] = compare(engine, scratch, text, digests)
            until(is_alone)
    result = {"megabytes": arguments.megabytes, "versions": find_versions(), "engines": engines}
    write_result("same-bytes", {**result, "sha256": digests[0]})
    if any(each["differences"] for each in engines.values()):
        sys.exit("a folder differs, or a command ended with another exit code")
