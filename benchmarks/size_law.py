"""Train `auto` at three sizes and budgets, fit its loss, and find when the next size pays.

The fit is L = E + A / N^alpha + B / D^beta for N million parameters and D million tokens (Hoffmann
et al., "Training Compute-Optimal Large Language Models", 2022), through these runs and the longer
ones that `reproduce` wrote. Speed is counted in seconds of processors, without compiling.
"""

import argparse
import json
import math
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares, root_scalar

from benchmarks.common import RESULTS, run_maskwright, write_result
from maskwright.logs import read_metrics
from maskwright.model.config import SIZE_FIELDS, resolve_config
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.pretraining.budget import count_flops
from maskwright.pretraining.sizes import Size, adopt_size, find_recipe, set_size
from maskwright.runs.config import resolve
from maskwright.runs.settled import Settled

SIZES = ("128x2", "192x2", "256x3")
LARGER = ("384x6", "384x12", "512x12", "768x12", "768x22", "1024x28")  # not trained here
MILLIONS = (1, 3, 9)
OPTIONS = (
    *("--train.batch_tokens", "2048", "--train.compile", "off"),
    *("--train.valid_seq_length", "128", "--train.num_validations", "1"),
)
LONGER = {
    "2026-11-24_amd-epyc-2c_reproduce-wiki-auto": "128x2",
    "2026-11-24_intel-xeon-2c_reproduce-wiki-auto-50": "256x3",
    "2026-11-24_amd-epyc-2c_reproduce-wiki-auto-120": "256x3",
}
LAW = {"E": 1.5, "A": 1.0, "alpha": 0.3, "B": 2.0, "beta": 0.4}  # where the fit starts
Run = dict[str, Any]


def train(size: str, millions: int, data: Path, run: Path) -> Run:
    """Return the figures of a run on millions of tokens, which is trained unless it has ended."""
    kept = run / "cpu_seconds"
    if not kept.exists():
        shutil.rmtree(run, ignore_errors=True)
        model = set_size(resolve("auto").model, *map(int, size.split("x")))
        shape = [part for name in SIZE_FIELDS for part in (f"--model.{name}", vars(model)[name])]
        before = _count_child_seconds()
        where = (data, "--recipe", "auto", "--runs-dir", run.parent, "--name", run.name)
        budget = ("--train.max_tokens", millions * 10**6, *OPTIONS)
        run_maskwright("pretrain", *where, *budget, *shape)
        kept.write_text(f"{_count_child_seconds() - before:.2f}\n")
    last = read_metrics(run / "metrics.jsonl")[-1]
    return describe(size, last) | {"cpu_seconds": float(kept.read_text())}


def _count_child_seconds() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def describe(size: str, last: Mapping[str, Any]) -> Run:
    """Return what the law needs of a run whose last validation is given."""
    config = resolve("auto")
    model = set_size(config.model, *map(int, size.split("x")))
    full = resolve_config(model, vocab_size=config.tokenizer.vocab_size, max_seq_length=128)
    halfway = replace(full, vocab_size=config.train.num_candidates)  # as `model.sizes` counts
    return {
        "size": size,
        "parameters": count_parameters(full).total,
        "flops_per_token": count_flops_per_token(halfway, 64, config.masking.rate),
        **{name: last[name] for name in ("tokens", "loss", "masked_accuracy")},
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
    """Return the budget from which on the larger size has the lower loss in equal time.

    It is in petaFLOP, counted at the larger size; None if the curves do not cross.
    """
    speeds = [run["tokens"] / run["cpu_seconds"] for run in pair]

    def gain(log: float) -> float:
        small, large = (predict(law, pair[i], np.exp(log) * speeds[i]) for i in (0, 1))
        return small - large

    if not gain(0) < 0 < gain(20):
        return None
    seconds = np.exp(root_scalar(gain, bracket=(0, 20)).root)
    return float(seconds * speeds[1] * pair[1]["flops_per_token"] / 1e15)


def describe_rung(size: str) -> Run:
    """Return what the law needs of a size of `auto` that computes a teraFLOP a second."""
    width, layers = map(int, size.split("x"))
    config = adopt_size(Settled.read("auto"), Size(0.0, width, layers)).config
    vocabulary, length = (
        resolve(find_recipe(width)).tokenizer.vocab_size,
        config.data.max_seq_length,
    )
    model = resolve_config(config.model, vocab_size=vocabulary, max_seq_length=length)
    flops = count_flops(config, model)
    speed = {"tokens": 1e12 / flops, "cpu_seconds": 1.0}
    return {"parameters": count_parameters(model).total, "flops_per_token": flops, **speed}


def extrapolate(law: Sequence[float]) -> dict[str, float]:
    """Return the petaFLOP from which on each size of `LARGER` pays, by the law.

    The text must have a token for each parameter as well: the law saw no model with less.
    """
    runs = {size: describe_rung(size) for size in (SIZES[-1], *LARGER)}
    pays: dict[str, float] = {}
    for (_, small), (size, large) in pairwise(runs.items()):
        one_each = large["parameters"] * large["flops_per_token"] / 1e15
        pays[size] = max(find_threshold(law, (small, large)) or math.inf, one_each)
    return pays


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="prepared English Wikipedia")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")


def main(arguments: argparse.Namespace) -> None:
    where = arguments.data, arguments.runs
    trained = [
        train(size, millions, where[0], where[1] / f"{size}-{millions}M")
        for millions in MILLIONS
        for size in SIZES
    ]
    longer = [
        describe(size, json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["final"])
        for name, size in LONGER.items()
    ]
    law = fit([*trained, *longer])
    largest = {run["size"]: run for run in trained}
    pays = {pair[1]["size"]: find_threshold(law, pair) for pair in pairwise(largest.values())}
    for run in (*trained, *longer):
        run["fitted"] = round(predict(law, run, run["tokens"]), 4)
    fitted = dict(zip(LAW, law, strict=True))
    result = {"runs": trained, "longer": longer, "law": fitted, "pays_from_petaflop_on": pays}
    result["extrapolated"] = extrapolate(law)
    write_result("sizes", result)
