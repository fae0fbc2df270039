"""Variants of the recipe ``sprint`` side by side on English Wikipedia, at equal wall-clock.

What they vary is the `baseline`: the recipe as it was before their results changed it.

    MASKWRIGHT_DATA=… python -m benchmarks.ablate --runs runs/ablation --minutes 5 all
    python -m benchmarks.ablate --runs runs/ablation --data DATA --at-once 1 masking lengths

Names are variants or groups of them; the baseline belongs to every group. How they share the
machine, and what is done when run again: `benchmarks.trials`. The result file holds all runs that
have ended, and is written after each.
"""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.common import write_result
from benchmarks.trials import Bench, Trial, add_arguments, open_bench

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


SHORT_ROWS = _lengths("0:32,0.4:64,0.85:128")
BASELINE_OPTIONS = [*_rate(0.3, 0.15), *_lengths("0:64,0.85:128"), *_width(256)]
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
        "rows-32-64-128": SHORT_ROWS,
        "rows-64-to-128-at-50": _lengths("0:64,0.5:128"),
        "rows-128-to-64": _lengths("0:128,0.5:64"),
    },
    "combined": {
        "mask-50": _rate(0.5, 0.5),
        "mask-40-to-20": _rate(0.4, 0.2),
        "mask-40-short-rows": [*_rate(0.4, 0.4), *SHORT_ROWS],
        "mask-50-short-rows": [*_rate(0.5, 0.5), *SHORT_ROWS],
        "mask-40-shorter-rows": [*_rate(0.4, 0.4), *_lengths("0:32,0.6:64,0.9:128")],
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
        "width-128": _width(128),
        "width-192": _width(192),
        "width-384": _width(384),
        "modernbert": MODERNBERT,
        "adamw": ["--optim.name=adamw"],
    },
}  # fmt: skip
# What each changes of the baseline.
VARIANTS: dict[str, list[str]] = {
    BASELINE: [],
    **{name: options for group in GROUPS.values() for name, options in group.items()},
}


def expand(names: Iterable[str]) -> list[str]:
    """The variants that names of variants and of groups mean, each once, the baseline first."""
    found: dict[str, None] = {}
    for name in names:
        group = [BASELINE, *GROUPS[name]] if name in GROUPS else [name]
        found.update(dict.fromkeys(VARIANTS if name == "all" else group))
    return [name for name in VARIANTS if name in found]


def read_scores(bench: Bench) -> Iterator[dict[str, Any]]:
    """What is known of each run that has ended, variant by variant."""
    for name, options in VARIANTS.items():
        for run in sorted(bench.runs.glob(f"{name}-seed*")):
            seed = run.name.removeprefix(f"{name}-seed")
            scores = bench.read(Trial(name, int(seed))) if seed.isdecimal() else None
            if scores:
                yield {"variant": name, "seed": int(seed), "options": options, **scores}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ["all", *GROUPS, *VARIANTS]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    bench = open_bench(arguments)
    trials = [
        Trial(name, seed, (*BASELINE_OPTIONS, *VARIANTS[name]))
        for seed in arguments.seeds
        for name in expand(arguments.names)
    ]
    for _ in bench.run_all(trials):
        runs = [*read_scores(bench)]
        conditions = {**bench.conditions, "baseline": BASELINE_OPTIONS}
        write_result("ablations-wiki_en", {**conditions, "runs": runs})


if __name__ == "__main__":
    main()
