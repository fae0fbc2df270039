"""Fuzz everything that maskwright reads, guided by coverage, with a time budget.

The targets are those of the tests (`tests.hostile.fuzzing`). Each runs in its own process, which
may take 1 GB of memory and 20 seconds per input. Inputs that fail are stored in build/fuzz/NAME.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks.common import write_result
from tests.hostile.fuzzing.targets import TARGETS, Target

MEMORY_MB, INPUT_SECONDS, LONGEST_INPUT = 1024, 20, 1 << 16
_FOLDER = Path("build/fuzz")
_STAT = re.compile(r"stat::(number_of_executed_units|peak_rss_mb):\s*(\d+)")
_FINDING = re.compile(
    r"(?:Uncaught Python exception.*?\n(.*?)\n|ERROR: libFuzzer: (.*?)\n)", re.DOTALL
)
_INPUT = re.compile(r"Test unit written to (\S+)")


@dataclass
class Outcome:
    """The figures of one target; `findings`: what was wrong, and the input."""

    inputs: int = 0
    seconds: float = 0.0
    peak_memory_mb: int = 0
    crashes: int = 0
    findings: list[str] = field(default_factory=list)


def fuzz(target: Target, seconds: float) -> Outcome:
    """Run one target for these seconds; after a finding it is started again."""
    outcome, begun = Outcome(), time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) >= 1:
        output, failed = _run_worker(target, int(left))
        stats = {key: int(value) for key, value in _STAT.findall(output)}
        outcome.inputs += stats.get("number_of_executed_units", 0)
        outcome.peak_memory_mb = max(outcome.peak_memory_mb, stats.get("peak_rss_mb", 0))
        if failed:
            outcome.crashes += 1
            finding = _describe(output)
            outcome.findings += [finding] * (finding not in outcome.findings)
            print(f"{target.name}: {finding}", flush=True)
    outcome.seconds = round(time.monotonic() - begun, 1)
    return outcome


def _run_worker(target: Target, seconds: int) -> tuple[str, bool]:
    folder = _FOLDER / target.name
    inputs = folder / "inputs"  # which hold what an earlier run found, too
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (inputs / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={INPUT_SECONDS}",
        f"-max_len={LONGEST_INPUT}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "tests.hostile.fuzzing.worker", target.name, *options, str(inputs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "RUST_BACKTRACE": "0"},
        encoding="utf-8",
        errors="replace",
    )
    return result.stdout, result.returncode != 0


def _describe(output: str) -> str:
    found = _FINDING.search(output)
    what = " ".join((found[1] or found[2]).split()) if found else output.strip()[-300:]
    written = _INPUT.findall(output)
    return f"{what} ({written[-1]})" if written else what


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together [10]")
    parser.add_argument("--only", choices=TARGETS, metavar="NAME", help=", ".join(TARGETS))


def main(arguments: argparse.Namespace) -> None:
    if importlib.util.find_spec("atheris") is None:
        sys.exit("fuzz needs atheris, which is not installed. Run: pip install -e '.[fuzz]'")
    names = [arguments.only] if arguments.only else list(TARGETS)
    seconds = 60 * arguments.minutes / len(names)
    outcomes: dict[str, Outcome] = {}
    for name in names:
        outcomes[name] = fuzz(TARGETS[name], seconds)
        print(f"{name}: {outcomes[name]}", flush=True)
    result = {
        "minutes": arguments.minutes,
        "atheris": version("atheris"),
        "memory_limit_mb": MEMORY_MB,
        "seconds_an_input": INPUT_SECONDS,
        "inputs": sum(outcome.inputs for outcome in outcomes.values()),
        "crashes": sum(outcome.crashes for outcome in outcomes.values()),
        "targets": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }
    write_result("fuzz" if len(names) > 1 else f"fuzz-{names[0]}", result)
