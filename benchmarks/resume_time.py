"""How long a run takes to resume: at step 10, and ten million rows into its data.

From the start of ``maskwright pretrain --resume`` to the first new line of training metrics, which
is that of the first step. Both runs have the same prepared data, written here with random tokens:
an epoch of 11 million rows. The far run is the near one with another position: the counts of its
checkpoint are changed (and their hash in its manifest), and its metrics are as long as those of a
run that trained up to there. Both are resumed in turn.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common import MASKWRIGHT, race, run_maskwright, write_result
from maskwright.files import hash_file, write_json
from maskwright.logs import read_metrics
from maskwright.shards.manifest import COUNTS_NAME, Manifest, ShardInfo, SplitInfo, write_manifest
from maskwright.shards.writer import ShardWriter, write_array
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.reliability.crash.killing import write_text

LIMIT_SECONDS = 1.0  # between the two
_ROW_LENGTH, _ROWS_A_STEP = 16, 16
_FAR_ROW = 10_000_000
_LOG_EVERY_STEPS = 20
# Rows are not packed: each is one segment of 14 tokens beside [CLS] and [SEP].
_SEGMENTS_A_DOCUMENT, _DOCUMENTS_A_SHARD, _NUM_SHARDS = 100, 11_000, 10
FLAGS = [
    "--data.max_seq_length", str(_ROW_LENGTH), "--data.packed", "false",
    "--model.hidden_size", "32", "--model.num_hidden_layers", "1",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "48",
    "--train.batch_tokens", str(_ROWS_A_STEP * _ROW_LENGTH), "--train.compile", "off",
    "--train.log_every_steps", "1", "--train.num_validations", "1",
    "--train.valid_tokens", "1024", "--train.final_valid_tokens", "1024",
    "--train.checkpoint_every_minutes", "1000",
]  # fmt: skip


def write_data(folder: Path) -> int:
    """Write prepared data of random tokens; return the number of rows in an epoch."""
    text = write_text(folder.with_suffix(".txt"), 0.3).read_text(encoding="utf-8")
    tokenizer = train_tokenizer(text.split("\n\n"), TokenizerConfig(vocab_size=512))
    tokenizer.save(folder / "tokenizer")
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    shards = [
        write_shard(folder / "train", number, _DOCUMENTS_A_SHARD, tokenizer, counts)
        for number in range(_NUM_SHARDS)
    ]
    ignored = np.zeros_like(counts)
    valid = write_shard(folder / "valid", 0, 10, tokenizer, ignored)
    manifest = Manifest(
        vocab_size=tokenizer.vocab_size,
        dtype="uint16",
        tokenizer_fingerprint=tokenizer.fingerprint,
        fingerprint="random",
        source={"paths": ["random tokens"], "seed": 0},
        splits={"train": sum_split(shards), "valid": sum_split([valid])},
        unigram_counts=write_array(folder / COUNTS_NAME, counts.astype("<u8")),
        dropped={},
    )
    write_manifest(folder, manifest)
    return manifest.splits["train"].num_documents * _SEGMENTS_A_DOCUMENT


def write_shard(
    folder: Path, number: int, num_documents: int, tokenizer: Tokenizer, counts: np.ndarray
) -> ShardInfo:
    """Write documents of the same length; add to `counts` how often each id occurs."""
    draw = np.random.default_rng(number)
    writer = ShardWriter(folder, f"{number:05d}", "uint16")
    ordinary = np.asarray(tokenizer.ordinary_ids, np.uint16)
    for _ in range(num_documents):
        ids = draw.choice(ordinary, _SEGMENTS_A_DOCUMENT * (_ROW_LENGTH - 2))
        counts += np.bincount(ids, minlength=len(counts))
        writer.add(ids, draw.random(len(ids)) < 0.7)
    return writer.close()


def sum_split(shards: list[ShardInfo]) -> SplitInfo:
    tokens = sum(shard.num_tokens for shard in shards)
    documents = sum(shard.num_documents for shard in shards)
    return SplitInfo(tokens, documents, 0, 0, 0, tuple(shards))


def move_far(run: Path) -> int:
    """Put the checkpoint of a run `_FAR_ROW` rows into the epoch; return its step."""
    step = _FAR_ROW // _ROWS_A_STEP
    [checkpoint] = (run / "checkpoints").iterdir()
    checkpoint = checkpoint.rename(checkpoint.with_name(f"step_{step:08d}"))
    state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    state["step"], state["position"]["row"] = step, _FAR_ROW
    state["tokens"] = _FAR_ROW * _ROW_LENGTH
    write_json(checkpoint / "state.json", state)
    manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    manifest["state.json"] = hash_file(checkpoint / "state.json")
    write_json(checkpoint / "manifest.json", manifest)
    lines = [record for record in read_metrics(run / "metrics.jsonl") if record["split"] == "train"]
    with (run / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for number in range(_LOG_EVERY_STEPS, step + 1, _LOG_EVERY_STEPS):
            file.write(json.dumps({**lines[-1], "step": number}) + "\n")
    return step


def time_resumption(run: Path, step: int) -> float:
    """Return the seconds from the start of the program to the line of the step after `step`."""
    copy = run.with_name("resumed")
    shutil.copytree(run, copy)
    size = (copy / "metrics.jsonl").stat().st_size
    command = [*MASKWRIGHT, "pretrain", "--resume", str(copy), "--train.max_steps", str(10**8)]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        while (copy / "metrics.jsonl").stat().st_size <= size:
            if process.poll() is not None:
                raise SystemExit(process.communicate()[1].decode())
            time.sleep(0.005)
        seconds = time.perf_counter() - started
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    first = next(r for r in read_metrics(copy / "metrics.jsonl") if r["step"] > step)
    if first["step"] != step + 1:
        raise SystemExit(f"the first step after {step} was {first['step']}")
    shutil.rmtree(copy)
    return seconds


def measure(folder: Path, rounds: int) -> dict[str, object]:
    """Make both runs and resume them in turn; return the figures for the result file."""
    rows = write_data(folder / "data")
    near, far = folder / "near", folder / "far"
    where = ("--runs-dir", folder, "--name", "near")
    run_maskwright("pretrain", folder / "data", *where, *FLAGS, "--train.max_steps", 10)
    shutil.rmtree(near / "model")
    shutil.copytree(near, far)
    steps = {near: 10, far: move_far(far)}
    contenders = {run.name: partial(time_resumption, run, step) for run, step in steps.items()}
    found = race(contenders, rounds + 1, "seconds")
    figures: dict[str, dict[str, float]] = {}
    for run, step in steps.items():
        _, *seconds = found[run.name]  # the first round fills the disk cache
        figures[run.name] = {
            "step": step,
            "row": step * _ROWS_A_STEP,
            "median_seconds": round(statistics.median(seconds), 2),
            "longest_seconds": round(max(seconds), 2),
        }
    difference = figures["far"]["median_seconds"] - figures["near"]["median_seconds"]
    conditions = {"rows_in_an_epoch": rows, "rounds": rounds, "limit_seconds": LIMIT_SECONDS}
    return {**conditions, **figures, "difference_seconds": round(difference, 2)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=7, help="of both, in turn [7]")


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="maskwright-resume-") as folder:
        write_result("resume-time", measure(Path(folder), arguments.rounds))
