"""Variants of the recipe ``sprint`` side by side on English Wikipedia, at equal wall-clock.

    MASKWRIGHT_DATA=… python -m benchmarks.ablate --runs runs/ablation --minutes 5 all
    python -m benchmarks.ablate --runs runs/ablation --data DATA --at-once 1 masking lengths

Names are variants or groups of them; `baseline` is the recipe as it is, and belongs to every group.
Runs share the machine alike: two at a time on one core each, or one at a time on all (--at-once).
A run that has ended is not run again and one that was killed goes on, so the program can be
interrupted and given more names or seeds later; but not other minutes. The result file holds all
runs that have ended, and is written after each.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.common import find_corpus, write_result
from maskwright.logs import read_metrics

BASELINE = "baseline"
DROPOUT = [f"--model.{part}_dropout=0.1" for part in ("embedding", "attention", "hidden")]
MODERNBERT = ["--model.preset=modernbert", "--model.global_attn_every_n_layers=1"]
ALL_MASK = ["--masking.mask_share=1.0", "--masking.random_share=0.0"]


def _rate(first: float, last: float) -> list[str]:
    return [f"--masking.rate={first}", f"--masking.final_rate={last}"]


def _lengths(stages: str) -> list[str]:
    return [f"--train.seq_length_schedule={stages}"]


def _layers(number: int) -> list[str]:
    return [f"--model.num_hidden_layers={number}"]


def _width(size: int) -> list[str]:
    return [
        f"--model.hidden_size={size}",
        f"--model.num_attention_heads={size // 64}",
        f"--model.intermediate_size={size * 3}",
    ]


GROUPS: dict[str, dict[str, list[str]]] = {
    "masking": {
        "spans": ["--masking.strategy=spans"],
        "short-spans": [
            "--masking.strategy=spans", "--masking.span_lengths=uniform",
            "--masking.max_span_length=3",
        ],
        "whole-words": ["--masking.strategy=words"],
        "unigram-replacement": ["--masking.replacement=unigram"],
        "all-mask": ALL_MASK,
    },
    "rates": {
        "mask-15": _rate(0.15, 0.15),
        "mask-20": _rate(0.2, 0.2),
        "mask-30": _rate(0.3, 0.3),
        "mask-40": _rate(0.4, 0.4),
        "mask-30-to-20": _rate(0.3, 0.2),
        "mask-15-to-30": _rate(0.15, 0.3),
    },
    "lengths": {
        "rows-of-64": _lengths("0:64"),
        "rows-of-128": _lengths("0:128"),
        "rows-32-64-128": _lengths("0:32,0.4:64,0.85:128"),
        "rows-64-to-128-at-50": _lengths("0:64,0.5:128"),
        "rows-128-to-64": _lengths("0:128,0.5:64"),
    },
    "batches": {
        "batch-1024": ["--train.batch_tokens=1024"],
        "batch-4096": ["--train.batch_tokens=4096"],
        "batch-ramp": ["--train.batch_tokens_schedule=0:1024,0.3:2048,0.7:4096"],
    },
    "regularization": {
        "dropout": DROPOUT,
        "ema-99": ["--train.ema_decay=0.99"],
        "ema-999": ["--train.ema_decay=0.999"],
    },
    "shape": {
        "layers-1": _layers(1),
        "layers-3": _layers(3),
        "layers-6": _layers(6),
        "width-192": _width(192),
        "width-384": _width(384),
        "modernbert": MODERNBERT,
        "adamw": ["--optim.name=adamw"],
    },
}  # fmt: skip
VARIANTS = {BASELINE: [], **{name: o for group in GROUPS.values() for name, o in group.items()}}
_SCORES = ("step", "tokens", "seconds", "loss", "masked_accuracy", "unigram_accuracy")


def expand(names: Iterable[str]) -> list[str]:
    """The variants that names of variants and of groups mean, each once, the baseline first."""
    found: dict[str, None] = {}
    for name in names:
        group = [BASELINE, *GROUPS[name]] if name in GROUPS else [name]
        found.update(dict.fromkeys(VARIANTS if name == "all" else group))
    return [name for name in VARIANTS if name in found]


def train(name: str, seed: int, data: Path, arguments: argparse.Namespace) -> None:
    """Trains one variant unless its run has ended."""
    run = arguments.runs / f"{name}-seed{seed}"
    if (run / "model").is_dir():
        return
    command = [sys.executable, "-m", "maskwright", "pretrain", str(data), "--recipe", "sprint"]
    command += ["--runs-dir", str(arguments.runs), "--name", run.name, "--auto-resume"]
    command += ["--train.max_minutes", str(arguments.minutes), "--seed", str(seed)]
    command += ["--train.final_valid_tokens", "131072", "--train.checkpoint_every_minutes", "2"]
    cores = max(1, (os.cpu_count() or 1) // arguments.at_once)
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores)}
    with (arguments.runs / f"{run.name}.log").open("a") as file:
        subprocess.run(
            [*command, *VARIANTS[name]], check=True, env=environment, stdout=file, stderr=file
        )


def read_scores(runs: Path) -> Iterator[dict[str, Any]]:
    """What is known of each run that has ended, variant by variant."""
    for name, options in VARIANTS.items():
        for run in sorted(runs.glob(f"{name}-seed*")):
            seed = run.name.removeprefix(f"{name}-seed")
            records = read_metrics(run / "metrics.jsonl") if (run / "model").is_dir() else []
            final = [record for record in records if record.get("final")]
            if final and seed.isdecimal():
                scores = {key: final[-1][key] for key in _SCORES}
                yield {"variant": name, "seed": int(seed), "options": options, **scores}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ["all", *GROUPS, *VARIANTS]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--minutes", type=float, default=5, help="of each run [5]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="[0 1]")
    parser.add_argument("--at-once", type=int, default=2, help="runs that share the cores [2]")
    parser.add_argument("--runs", type=Path, required=True, help="keeps the runs")
    parser.add_argument("--data", type=Path, help="prepared data, to save time")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    data = arguments.data or arguments.runs / "data"
    if not data.exists():
        text = str(find_corpus("wiki_en/wiki_en.train.txt.gz"))
        command = [sys.executable, "-m", "maskwright", "prepare", text, "--out", str(data)]
        subprocess.run(command, check=True)
    conditions = {"minutes": arguments.minutes, "runs_at_once": arguments.at_once}
    with ThreadPoolExecutor(arguments.at_once) as pool:
        begun = [
            pool.submit(train, name, seed, data, arguments)
            for seed in arguments.seeds
            for name in expand(arguments.names)
        ]
        for run in as_completed(begun):
            run.result()
            write_result(
                "ablations-wiki_en", {**conditions, "runs": [*read_scores(arguments.runs)]}
            )


if __name__ == "__main__":
    main()
