"""From the command to the first optimizer step, beside a script with transformers' Trainer.

    MASKWRIGHT_DATA=… python -m benchmarks.start_speed [--data DATA]

Fresh processes, in turns, without compiling. Both find their text prepared: ours a prepared folder,
which it verifies first; theirs (`trainer_peer`) blocks of token ids, saved by `datasets`. The clock
stops at the line that each prints after its first step.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.common import find_prepared, write_result
from benchmarks.races import divide, race
from benchmarks.trainer_peer import cut_blocks, wrap_tokenizer
from maskwright.pretraining.prepared_data import PreparedData

NUM_ROWS = 50_000


def time_until(command: Sequence[str], words: str) -> float:
    """Seconds until a program prints these words; then it is stopped."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line)
        if words in line:
            break
    seconds = time.perf_counter() - began
    process.kill()
    process.communicate()
    if not printed or words not in printed[-1]:
        sys.exit(f"{' '.join(command)} ended before its first step:\n{''.join(printed)}")
    return seconds


def save_blocks(data: PreparedData, folder: Path) -> None:
    """Rows of 128 tokens as `run_mlm.py` leaves them, and the tokenizer."""
    from datasets import Dataset

    rows = cut_blocks(data, NUM_ROWS)
    columns = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
    Dataset.from_dict(columns).save_to_disk(str(folder / "blocks"))
    wrap_tokenizer(data.tokenizer).save_pretrained(folder / "tokenizer")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="English Wikipedia, prepared already")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with find_prepared(arguments.data) as folder, tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        save_blocks(PreparedData(folder), scratch)
        ours = [sys.executable, "-u", "-m", "maskwright", "pretrain", str(folder)]
        ours += ["--recipe", "tiny", "--train.compile", "off", "--train.log_every_steps", "1"]
        theirs = [sys.executable, "-u", "-m", "benchmarks.trainer_peer", str(scratch)]

        def start_ours() -> float:
            with tempfile.TemporaryDirectory() as runs:
                return time_until([*ours, "--runs-dir", runs], "step 1 ")

        contenders = {"ours": start_ours, "Trainer": partial(time_until, theirs, "step 1 ")}
        found = race(contenders, arguments.rounds, "seconds")
    ratio = divide(found["ours"], found["Trainer"])
    print(ratio)
    write_result("start-speed", {"seconds": found, "ours_over_theirs": ratio})


if __name__ == "__main__":
    main()
