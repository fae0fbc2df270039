"""Test the server with requests that schemathesis generates from its OpenAPI document.

It needs ``pip install schemathesis``. Two responses are not failures here: 413 for a text that is
also too long by the document, and 422 for a text without a mask, which no document can exclude.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import write_result
from benchmarks.serving_load import serving

_SETTINGS = """[checks]
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = [400, 401, 404, 405, 408, 413, 422, "5xx"]
"""
_TIMEOUT = 1800
_REPORTED = ("schemathesis_version", "running_time", "stop_reason")


def fuzz(program: str, port: int, examples: int, seed: int) -> tuple[int, dict[str, Any]]:
    """Return the exit code of schemathesis, 0 if nothing was found, and its report."""
    with tempfile.TemporaryDirectory() as folder:
        settings, report = Path(folder) / "settings.toml", Path(folder) / "report.json"
        settings.write_text(_SETTINGS)
        command = [program, "--config-file", str(settings), "run"]
        command += [f"http://127.0.0.1:{port}/openapi.json", "--max-examples", str(examples)]
        command += ["--seed", str(seed), "--report-json-path", str(report)]
        done = subprocess.run(command, cwd=folder, timeout=_TIMEOUT, check=False)
        return done.returncode, json.loads(report.read_text())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model")
    parser.add_argument("--examples", type=int, default=200, help="requests per operation [200]")
    parser.add_argument("--seed", type=int, default=0)


def main(arguments: argparse.Namespace) -> None:
    program = shutil.which("schemathesis")
    if program is None:
        sys.exit("schemathesis is not installed: pip install schemathesis")
    with serving(arguments.model) as (process, port):
        code, report = fuzz(program, port, arguments.examples, arguments.seed)
        is_alive = process.poll() is None
    found = {"examples": arguments.examples, "seed": arguments.seed, "nothing_found": code == 0}
    facts = {key: report[key] for key in _REPORTED}
    write_result("serving-fuzz", {**found, "server_went_on": is_alive, "report": facts})
    sys.exit(code)
