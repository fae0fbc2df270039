"""Variants of the recipe ``sprint`` side by side on English Wikipedia, at equal wall-clock.

    MASKWRIGHT_DATA=… python -m benchmarks.ablate --runs runs/ablation layers-2 layers-3

Each variant runs on one core, as many at a time as there are cores, so that all of them share the
machine alike. A variant whose run is finished already is not run again, so the program can be
interrupted and given more names later.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import find_corpus, write_result
from maskwright.logs import read_metrics

MODERNBERT = ["--model.preset", "modernbert", "--model.global_attn_every_n_layers", "1"]
VARIANTS: dict[str, list[str]] = {
    "layers-2": ["--model.num_hidden_layers", "2"],
    "layers-3": ["--model.num_hidden_layers", "3"],
    "layers-6": ["--model.num_hidden_layers", "6"],
    "modernbert": MODERNBERT,
    "adamw": ["--optim.name", "adamw"],
    "mask-20": ["--masking.rate", "0.2"],
    "rows-of-128": ["--train.seq_length_schedule", "0:128"],
    "whole-words": ["--masking.strategy", "words"],
}


def run_variant(name: str, data: Path, runs: Path, minutes: float) -> dict[str, Any]:
    """Trains one variant unless its run is finished; its last validation."""
    run = runs / name
    if not (run / "model").is_dir():
        command = [sys.executable, "-m", "maskwright", "pretrain", str(data), "--recipe", "sprint"]
        command += ["--runs-dir", str(runs), "--name", name, *VARIANTS[name]]
        command += ["--train.max_minutes", str(minutes), "--train.final_valid_tokens", "131072"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        log = runs / f"{name}.log"
        with log.open("w") as file:
            subprocess.run(command, check=True, env=environment, stdout=file, stderr=file)
    final = [r for r in read_metrics(run / "metrics.jsonl") if r["split"] == "valid"][-1]
    keys = ("step", "tokens", "seconds", "loss", "masked_accuracy", "unigram_accuracy")
    return {"options": VARIANTS[name], **{key: final[key] for key in keys}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=sorted(VARIANTS))
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--runs", type=Path, required=True, help="keeps the runs")
    parser.add_argument("--data", type=Path, help="prepared data, to save time")
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    data = arguments.data or arguments.runs / "data"
    if not data.exists():
        text = str(find_corpus("wiki_en/wiki_en.train.txt.gz"))
        command = [sys.executable, "-m", "maskwright", "prepare", text, "--out", str(data)]
        subprocess.run(command, check=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(
            lambda name: run_variant(name, data, arguments.runs, arguments.minutes),
            arguments.names,
        )
        scores = dict(zip(arguments.names, results, strict=True))
    write_result("ablation-wiki_en", {"minutes_on_one_core": arguments.minutes, "variants": scores})


if __name__ == "__main__":
    main()
