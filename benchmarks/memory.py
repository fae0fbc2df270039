"""Memory of ``maskwright prepare`` and ``pretrain`` on a corpus and on one four times as large.

The text is English Wikipedia, repeated; every article begins with the number of its copy, so that
none is a duplicate. Pretraining draws its rows from the whole corpus; the model is small and a step
has many rows, so that the memory of the data shows beside that of the model.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common

LIMIT_MEGABYTES = 100  # of growth, from the smallest corpus to the largest
_STEPS = 150
PRETRAIN = [
    "--data.max_seq_length", "128", "--model.hidden_size", "64", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "96",
    "--train.batch_tokens", "8192", "--train.micro_batch_tokens", "2048",
    "--train.compile", "off", "--train.num_validations", "2", "--train.max_steps", str(_STEPS),
]  # fmt: skip


def measure(folder: Path, megabytes: int) -> dict[str, Any]:
    """Prepare a corpus of this size and train on it; return the peaks of both."""
    text, data = folder / f"{megabytes}.txt", folder / f"data-{megabytes}"
    articles = common.repeat_wikipedia(lambda text, copy: f"Copy {copy + 1}.\n{text}")
    common.write_articles(text, articles, megabytes)
    command = [*common.MASKWRIGHT, "prepare", str(text), "--out", str(data)]
    prepared, prepare_seconds = common.measure_peak([*command, "--tokenizer.vocab_size", "4096"])
    text.unlink()
    command = [*common.MASKWRIGHT, "pretrain", str(data), "--runs-dir", str(folder), *PRETRAIN]
    trained, train_seconds = common.measure_peak([*command, "--name", f"run-{megabytes}"])
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    return {
        "text_megabytes": megabytes,
        "tokens": manifest["splits"]["train"]["num_tokens"],
        "prepare": {**prepared.in_megabytes(), "seconds": round(prepare_seconds, 1)},
        "pretrain": {**trained.in_megabytes(), "seconds": round(train_seconds, 1)},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, nargs="+", default=[150, 600])


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="maskwright-memory-") as folder:
        corpora = [measure(Path(folder), size) for size in sorted(arguments.megabytes)]
    first, last = corpora[0], corpora[-1]
    peak, programs = "peak_resident_megabytes", ("prepare", "pretrain")
    growth = {program: last[program][peak] - first[program][peak] for program in programs}
    result = {"corpora": corpora, "growth": growth, "limit_megabytes": LIMIT_MEGABYTES}
    common.write_result("memory", {"steps": _STEPS, **result})
    if max(growth.values()) > LIMIT_MEGABYTES:
        sys.exit("the resident memory grew by more than the limit")
