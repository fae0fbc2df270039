"""Train `auto` at sizes and budgets of tokens, fit its loss, and find when the next size pays.

The fit is L = E + A / N^alpha + B / D^beta for N million parameters and D million tokens (Hoffmann
et al., "Training Compute-Optimal Large Language Models", 2022). Time is that of processors.
"""

import argparse
import resource
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, least_squares

from benchmarks.common import run_maskwright, write_result
from maskwright.logs import read_metrics
from maskwright.model.config import SIZE_FIELDS, resolve_config
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.pretraining.budget import set_size
from maskwright.runs.config import resolve

SIZES = {
    "128x2": (1, 3, 9),
    "192x2": (1, 3, 9),
    "256x3": (1, 3, 9),
    "256x6": (1, 3),
    "384x3": (1, 3),
}
LAW = {"E": 1.5, "A": 1.0, "alpha": 0.3, "B": 2.0, "beta": 0.4}  # where the fit starts
Run = dict[str, Any]


def train(size: str, millions: int, data: Path, run: Path) -> Run:
    """Return the figures of a run on millions of tokens, which is trained unless it exists."""
    config, kept = resolve("auto"), run / "cpu_seconds"
    model = set_size(config.model, *map(int, size.split("x")))
    if not kept.exists():
        shape = [part for name in SIZE_FIELDS for part in (f"--model.{name}", vars(model)[name])]
        before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        where = (data, "--recipe", "auto", "--runs-dir", run.parent, "--name", run.name)
        run_maskwright("pretrain", *where, "--train.max_tokens", millions * 10**6, *shape)
        kept.write_text(f"{sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before:.2f}\n")
    full = resolve_config(model, vocab_size=config.tokenizer.vocab_size, max_seq_length=128)
    halfway = replace(full, vocab_size=config.train.num_candidates)  # as `model.sizes` counts
    last = read_metrics(run / "metrics.jsonl")[-1]
    return {
        "size": size,
        "parameters": count_parameters(full).total,
        "flops_per_token": count_flops_per_token(halfway, 64, config.masking.rate),
        **{name: last[name] for name in ("tokens", "loss", "masked_accuracy")},
        "cpu_seconds": float(kept.read_text()),
    }


def predict(law: Sequence[float], run: Run, tokens: float) -> float:
    e, a, alpha, b, beta = law
    return float(e + a / (run["parameters"] / 1e6) ** alpha + b / (tokens / 1e6) ** beta)


def fit(runs: Sequence[Run]) -> list[float]:
    """Return the law with the least Huber loss between the logarithms of losses."""

    def find_errors(logs: Sequence[float]) -> list[float]:
        law = np.exp(logs).tolist()
        return [float(np.log(predict(law, run, run["tokens"]) / run["loss"])) for run in runs]

    start = np.log(list(LAW.values()))
    return np.exp(least_squares(find_errors, start, loss="huber", f_scale=0.01).x).tolist()


def find_threshold(law: Sequence[float], pair: tuple[Run, Run]) -> float | None:
    """Return the petaFLOP of the second from which on it is better in equal time, if any."""
    speeds = [run["tokens"] / run["cpu_seconds"] for run in pair]

    def gain(log: float) -> float:
        small, large = (predict(law, pair[i], np.exp(log) * speeds[i]) for i in (0, 1))
        return small - large

    if not gain(0) < 0 < gain(20):
        return None
    return float(np.exp(brentq(gain, 0, 20)) * speeds[1] * pair[1]["flops_per_token"] / 1e15)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="prepared English Wikipedia")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")


def main(arguments: argparse.Namespace) -> None:
    budgets = [(size, millions) for size, counts in SIZES.items() for millions in counts]
    runs = [train(*b, arguments.data, arguments.runs / "{}-{}M".format(*b)) for b in budgets]
    law, longest = fit(runs), {run["size"]: run for run in runs}
    pays = {pair[1]["size"]: find_threshold(law, pair) for pair in pairwise(longest.values())}
    fitted = dict(zip(LAW, law, strict=True))
    write_result("sizes", {"runs": runs, "law": fitted, "pays_from_petaflop_on": pays})
