"""The program as its user starts it: in a process of its own."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from maskwright.cli.main import main
from maskwright.logs import read_metrics
from tests.workplace import SMALL, data_of

PROGRAM = [sys.executable, "-m", "maskwright"]
PATIENCE_SECONDS = 120


def test_a_run_stopped_by_sigterm_goes_on(workplace: Path, tmp_path: Path):
    data = str(data_of(workplace))
    run, metrics = tmp_path / "run", tmp_path / "run" / "metrics.jsonl"
    flags = [*SMALL, "--train.max_steps", "100000", "--train.log_every_steps", "1"]
    command = [*PROGRAM, "pretrain", data, *flags, "--runs-dir", str(tmp_path), "--name", "run"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not read_metrics(metrics) and time.monotonic() < deadline:
            assert process.poll() is None, "the run ended by itself"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"--resume {run}" in output
    step = json.loads(next((run / "checkpoints").iterdir()).joinpath("state.json").read_text())[
        "step"
    ]
    more = ["--train.max_steps", str(step + 2)]
    assert main(["pretrain", "--resume", str(run), *more]) == 0
    steps = [record["step"] for record in read_metrics(metrics) if record["split"] == "train"]
    assert steps == list(range(1, step + 3))
    assert (run / "model" / "model.safetensors").is_file()


def test_bad_input_ends_the_process_with_one_line_and_exit_code_2(tmp_path: Path):
    """Past all imports of training; `test_bad_input` has the other lines."""
    arguments = ["pretrain", "pydocs", "--runs-dir", "/dev/null"]
    result = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("InputError: /dev/null")
