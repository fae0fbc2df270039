"""Memory of ``maskwright prepare`` and ``pretrain`` on a corpus and on one four times as large.

    MASKWRIGHT_DATA=… python -m benchmarks.memory [--megabytes 150 600]

The text is English Wikipedia, copied as often as it takes; every article begins with the number
of its copy, so that none is a duplicate. Pretraining draws its rows from the whole corpus; a small
model and many rows a step, so that what the data takes is not lost beside what the model takes.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.common import find_corpus, write_result
from benchmarks.processes import measure_peak

LIMIT_MEGABYTES = 100  # of growth, from the smallest corpus to the largest
MASKWRIGHT = [sys.executable, "-m", "maskwright"]
_STEPS = 150
PRETRAIN = [
    "--data.max_seq_length", "128", "--model.hidden_size", "64", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "96",
    "--train.batch_tokens", "8192", "--train.micro_batch_tokens", "2048",
    "--train.compile", "off", "--train.num_validations", "2", "--train.max_steps", str(_STEPS),
]  # fmt: skip


def copy_articles(source: Path) -> Iterator[bytes]:
    """The lines of a corpus again and again, each article under the number of its copy."""
    for number in count(1):
        begins = True
        with gzip.open(source, "rb") as file:
            for line in file:
                if begins:
                    yield b"Copy %d.\n" % number
                begins = not line.strip()
                yield line
        yield b"\n"


def write_corpus(source: Path, path: Path, megabytes: int) -> None:
    """A text file of so many megabytes, never more than a line of it in memory."""
    num_bytes = 0
    with path.open("wb") as file:
        for line in copy_articles(source):
            num_bytes += file.write(line)
            if num_bytes >= megabytes * 1e6:
                return


def measure(source: Path, folder: Path, megabytes: int) -> dict[str, Any]:
    """Prepares a corpus of this size and trains on it; the peaks of both."""
    text, data = folder / f"{megabytes}.txt", folder / f"data-{megabytes}"
    write_corpus(source, text, megabytes)
    command = [*MASKWRIGHT, "prepare", str(text), "--out", str(data)]
    prepared, prepare_seconds = measure_peak([*command, "--tokenizer.vocab_size", "4096"])
    text.unlink()
    command = [*MASKWRIGHT, "pretrain", str(data), "--runs-dir", str(folder), *PRETRAIN]
    trained, train_seconds = measure_peak([*command, "--name", f"run-{megabytes}"])
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    train = manifest["splits"]["train"]
    return {
        "text_megabytes": megabytes,
        "documents": train["num_documents"],
        "tokens": train["num_tokens"],
        "token_files_megabytes": round(
            sum(f["num_bytes"] for s in train["shards"] for f in s["files"].values()) / 1e6
        ),
        "dropped": manifest["dropped"],
        "prepare": {**prepared.in_megabytes(), "seconds": round(prepare_seconds, 1)},
        "pretrain": {**trained.in_megabytes(), "seconds": round(train_seconds, 1)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory on corpora of several sizes.")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[150, 600])
    arguments = parser.parse_args()
    source = find_corpus("wiki_en/wiki_en.train.txt.gz")
    with tempfile.TemporaryDirectory(prefix="maskwright-memory-") as folder:
        corpora = [measure(source, Path(folder), size) for size in sorted(arguments.megabytes)]
    growth = {
        program: {
            name: corpora[-1][program][name] - corpora[0][program][name]
            for name in corpora[0][program]
            if name.startswith("peak")
        }
        for program in ("prepare", "pretrain")
    }
    result = {"corpora": corpora, "growth": growth, "limit_megabytes": LIMIT_MEGABYTES}
    write_result("memory", {"steps": _STEPS, **result})
    if any(g["peak_resident_megabytes"] > LIMIT_MEGABYTES for g in growth.values()):
        sys.exit("the resident memory grew by more than the limit")


if __name__ == "__main__":
    main()
