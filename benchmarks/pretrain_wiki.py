"""The quality of a short run: recipe ``sprint`` on English Wikipedia for a number of minutes.

    MASKWRIGHT_DATA=… python -m benchmarks.pretrain_wiki --minutes 10

The time is wall-clock on two cores, compiling and validation during training included, text
preparation not. The scores are those of the last line of metrics.jsonl: pinned masks on articles
that are in no training text.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import find_corpus, write_result
from maskwright.logs import read_metrics


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--recipe", default="sprint")
    parser.add_argument("--name", help="put into the name of the result file")
    parser.add_argument("--data", type=Path, help="prepared data, to save time")
    parser.add_argument("--runs", type=Path, help="keep the run in this folder")
    parser.add_argument("options", nargs="*", help="more flags for maskwright pretrain")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="maskwright-bench-"))
    runs = arguments.runs or scratch
    data = arguments.data or scratch / "wiki"
    program = [sys.executable, "-m", "maskwright"]
    if not data.exists():
        text = str(find_corpus("wiki_en/wiki_en.train.txt.gz"))
        subprocess.run([*program, "prepare", text, "--out", str(data)], check=True)
    options = ["--recipe", arguments.recipe, "--train.max_minutes", str(arguments.minutes)]
    command = [*program, "pretrain", str(data), "--runs-dir", str(runs), "--name", "wiki_en"]
    subprocess.run([*command, *options, *arguments.options], check=True)
    records = read_metrics(runs / "wiki_en" / "metrics.jsonl")
    curve = [record for record in records if record["split"] == "valid"]
    keys = ("step", "tokens", "seconds", "loss", "masked_accuracy")
    write_result(
        f"pretrain-wiki_en-{arguments.name or arguments.recipe}-{arguments.minutes:g}min",
        {
            "recipe": arguments.recipe,
            "options": arguments.options,
            "final": {key: value for key, value in curve[-1].items() if key != "split"},
            "curve": [{key: record[key] for key in keys} for record in curve],
        },
    )


if __name__ == "__main__":
    main()
