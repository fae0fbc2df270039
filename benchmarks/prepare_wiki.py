"""Throughput and peak memory of ``maskwright prepare`` on English Wikipedia.

    MASKWRIGHT_DATA=… python -m benchmarks.prepare_wiki

Runs the command as a user would, in a process of its own, and adds up the resident memory of it
and its workers (shared pages counted once for each process, so the sum is an upper bound).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.common import find_corpus, write_result
from benchmarks.processes import measure_peak


def main() -> None:
    source = find_corpus("wiki_en/wiki_en.train.txt.gz")
    folder = Path(tempfile.mkdtemp(prefix="maskwright-bench-"))
    command = [sys.executable, "-m", "maskwright", "prepare", str(source)]
    command += ["--out", str(folder / "wiki"), "--tokenizer.vocab_size", "8192"]
    peak, seconds = measure_peak(command)
    manifest = json.loads((folder / "wiki" / "manifest.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    splits = manifest["splits"]
    num_bytes = sum(split["num_bytes"] for split in splits.values())
    write_result(
        "prepare-wiki_en",
        {
            "vocab_size": manifest["vocab_size"],
            "text_bytes": num_bytes,
            "tokens": sum(split["num_tokens"] for split in splits.values()),
            "seconds": round(seconds, 1),
            "megabytes_per_second": round(num_bytes / 1e6 / seconds, 2),
            "peak_resident_megabytes": round(peak.resident / 1e6),
        },
    )


if __name__ == "__main__":
    main()
