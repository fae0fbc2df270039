"""Measure ``make quickstart`` from a fresh clone, installation included."""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, write_result
from maskwright.logs import read_metrics


def main(arguments: argparse.Namespace) -> None:
    clone = Path(tempfile.mkdtemp(prefix="maskwright-bench-")) / "maskwright"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    times = [time.perf_counter()]
    for target in (".venv/.core", "quickstart"):
        subprocess.run(["make", target], cwd=clone, check=True)
        times.append(time.perf_counter())
    [metrics] = clone.glob("runs/*/metrics.jsonl")
    final = [record for record in read_metrics(metrics) if record["split"] == "valid"][-1]
    result = {
        "install_seconds": round(times[1] - times[0], 1),
        "work_seconds": round(times[2] - times[1], 1),
        "final": {key: value for key, value in final.items() if key != "split"},
    }
    write_result("quickstart", result)
