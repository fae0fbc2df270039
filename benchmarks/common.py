"""Shared parts of benchmarks: corpora, interleaved rounds, peak memory, dated result files."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import stream_corpus
from maskwright.provenance import describe_cpu, describe_environment

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
MASKWRIGHT = (sys.executable, "-m", "maskwright")
BENCHMARKS = (sys.executable, "-m", "benchmarks")
VOCAB_SIZE = ("--tokenizer.vocab_size", "8192")
WIKIPEDIA = "wiki_en/wiki_en.train.txt.gz"
_SAMPLE_SECONDS = 0.2

Result = Mapping[str, Any]
Contenders = Mapping[str, Callable[[], float]]


def find_corpus(name: str) -> Path:
    """Return a corpus below MASKWRIGHT_DATA; end the program with one line if it is missing."""
    root = os.environ.get("MASKWRIGHT_DATA")
    if not root:
        sys.exit("set MASKWRIGHT_DATA to a folder with the corpora (wiki_en/, glue/, …)")
    path = Path(root) / name
    if not path.exists():
        sys.exit(f"{path} does not exist")
    return path


def read_wikipedia() -> Iterator[str]:
    """Yield the articles of English Wikipedia, cleaned as for training."""
    config = CorpusConfig(valid_fraction=0.0)
    for document in stream_corpus([str(find_corpus(WIKIPEDIA))], config, Counter()):
        yield document.text


def write_articles(path: Path, articles: Iterator[str], megabytes: float) -> tuple[int, int]:
    """Write articles until the file has this size; return its articles and bytes."""
    num_bytes = 0
    with path.open("wb") as file:
        for number, text in enumerate(articles, start=1):
            num_bytes += file.write(f"{text}\n\n".encode())
            if num_bytes >= megabytes * 1e6:
                return number, num_bytes
    sys.exit(f"the corpus ends after {num_bytes / 1e6:.1f} of {megabytes:g} MB")


def run_maskwright(*arguments: object) -> float:
    """Run a command of maskwright; return its seconds."""
    began = time.perf_counter()
    subprocess.run([*MASKWRIGHT, *map(str, arguments)], check=True)
    return time.perf_counter() - began


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--data``."""
    parser.add_argument("--data", type=Path, help="prepared English Wikipedia [prepare it]")


@contextmanager
def find_prepared(folder: Path | None, sentences: bool = False) -> Iterator[Path]:
    """Yield `folder`, or English Wikipedia prepared in a temporary folder.

    Args:
        sentences: prepare one sentence per document.
    """
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        unit = ("--corpus.documents", "sentences") if sentences else ()
        where = (find_corpus(WIKIPEDIA), "--out", Path(scratch) / "data")
        run_maskwright("prepare", *where, *VOCAB_SIZE, *unit)
        yield Path(scratch) / "data"


def race(contenders: Contenders, rounds: int, unit: str) -> dict[str, list[float]]:
    """Return what each contender returned, round by round; all run in one round before the next.

    On a shared machine only ratios of neighbors mean something.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in contenders.items():
            found[name].append(run())
            print(f"round {number + 1}  {name:<36} {found[name][-1]:>14,.2f} {unit}", flush=True)
    return found


def divide(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Return the median, least and most of ours over theirs, round by round."""
    each = [mine / his for mine, his in zip(ours, theirs, strict=True)]
    figures = {"median": statistics.median(each), "least": min(each), "most": max(each)}
    return {name: round(value, 3) for name, value in figures.items()}


def run_alone(*arguments: object) -> float:
    """Run a benchmark in a process of its own; return the number that it prints last."""
    command = [*BENCHMARKS, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


@dataclass
class Peak:
    """The highest memory of a process and its descendants, from /proc, in bytes.

    Attributes:
        resident: pages in memory; those that processes share count for each (an upper bound).
        proportional: shared pages are divided among the processes that share them.
    """

    resident: int = 0
    proportional: int = 0

    def update(self, root: int) -> None:
        """Take in the current memory of the process `root` and its descendants."""
        sums = [_read_memory(pid) for pid in list_tree(root)]
        for name, values in zip(vars(self), zip(*sums, strict=True), strict=True):
            setattr(self, name, max(getattr(self, name), sum(values)))


def list_tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # of a process that has ended meanwhile
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def _read_memory(pid: int) -> tuple[int, int]:
    """Return resident and proportional bytes; zeros if the process has ended."""
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    values = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
    return values["Rss:"], values["Pss:"]


def measure_peak(command: Sequence[str]) -> tuple[Peak, float]:
    """Run a command; return its peak, sampled five times a second, and its seconds.

    Raises:
        CalledProcessError: the command failed.
    """
    began, peak = time.perf_counter(), Peak()
    process = subprocess.Popen(command)
    while process.poll() is None:
        peak.update(process.pid)
        time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return peak, time.perf_counter() - began


def write_result(name: str, result: Mapping[str, Any]) -> Path:
    """Write ``results/DATE_HARDWARE_NAME.json`` with the environment beside the figures."""
    RESULTS.mkdir(exist_ok=True)
    environment = describe_environment()
    arguments = [Path(part).name if "/" in part else part for part in sys.argv[1:]]
    environment["command"] = ["python", "-m", "benchmarks", *arguments]
    if source := environment["source"]:
        command = ["git", "-C", str(RESULTS.parent), "diff", "--quiet", "HEAD", "--", "*.py"]
        is_clean = not source["diff"] and subprocess.run(command).returncode == 0
        environment["source"] = {**source, "diff": "clean" if is_clean else "modified"}
    for package in ("transformers", "datasets"):
        with suppress(PackageNotFoundError):
            environment["packages"][package] = version(package)
    words = [w for w in describe_cpu().lower().replace("(r)", "").split() if w.isalnum()][:2]
    hardware = "-".join([*words, f"{os.cpu_count()}c"]) or platform.machine()
    path = RESULTS / f"{date.today():%Y-%m-%d}_{hardware}_{name}.json"
    content = {"name": name, **result, "environment": environment}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path}")
    return path


def find_results(name: str, folder: Path | None = None) -> list[Result]:
    """Return all results of this name, the newest last, each with the name of its `file`."""
    return [
        {**json.loads(file.read_text(encoding="utf-8")), "file": file.name}
        for file in sorted((folder or RESULTS).glob(f"*_{name}.json"))
    ]


def find_result(name: str, folder: Path | None = None) -> Result | None:
    """Return the newest result of this name, if there is one."""
    return next(iter(find_results(name, folder)[::-1]), None)


def recall(kept: Path, work: Callable[[], Any]) -> Any:
    """Return what `work` returns, from the file `kept` if it has been done before."""
    if not kept.exists():
        kept.write_text(json.dumps(work()), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))
