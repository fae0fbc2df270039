"""``make quickstart`` as a newcomer has it: from a fresh clone, installation included.

python -m benchmarks.quickstart
"""

import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.common import write_result
from maskwright.logs import read_metrics

ROOT = Path(__file__).parents[1]


def main() -> None:
    clone = Path(tempfile.mkdtemp(prefix="maskwright-bench-")) / "maskwright"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    started = time.perf_counter()
    subprocess.run(["make", ".venv/.core"], cwd=clone, check=True)
    installed = time.perf_counter()
    subprocess.run(["make", "quickstart"], cwd=clone, check=True)
    ended = time.perf_counter()
    [metrics] = clone.glob("runs/*/metrics.jsonl")
    final = [record for record in read_metrics(metrics) if record["split"] == "valid"][-1]
    result = {
        "install_seconds": round(installed - started, 1),
        "work_seconds": round(ended - installed, 1),
        "final": {key: value for key, value in final.items() if key != "split"},
    }
    write_result("quickstart", result)


if __name__ == "__main__":
    main()
