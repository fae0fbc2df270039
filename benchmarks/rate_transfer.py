"""Find the best learning rates of `auto` by width: where they move, rates do not transfer.

    python -m benchmarks rate-transfer --data DATA --runs runs/rates

One rate changes at a time, the other is that of the recipe, and every run has the same tokens and
pinned masks (Yang et al., "Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer",
2022). A second call runs only what has no result.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.common import recall, write_result
from maskwright.model.config import SIZE_FIELDS
from maskwright.pretraining.build import build_trainer
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.sizes import set_size
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.train.device import keep_freed_memory

RATES = ("muon_learning_rate", "learning_rate")
FACTORS = (0.25, 0.5, 1.0, 2.0)
Run = dict[str, Any]
_ROW = 64
_CONDITIONS = ("layers", "steps", "batch_tokens", "device")
_SCORES = ("step", "tokens", "loss", "masked_accuracy", "unigram_loss")


def configure(
    width: int, rates: dict[str, float], seed: int, arguments: argparse.Namespace
) -> PretrainConfig:
    """Return the recipe with this width and these rates, in rows of one length."""
    model = set_size(resolve("auto").model, width, arguments.layers)
    train = {
        "max_minutes": None,
        "max_steps": arguments.steps,
        "batch_tokens": arguments.batch_tokens,
        "seq_length_schedule": [],
        "num_validations": 1,
        "final_valid_tokens": 65_536,
        "compile": "off",
        "device": arguments.device,
    }
    sizes = {name: getattr(model, name) for name in SIZE_FIELDS} | {"sizes": []}
    sections = {"data": {"max_seq_length": _ROW}, "model": sizes, "optim": rates, "train": train}
    return resolve("auto", None, {**sections, "seed": seed})


def train(config: PretrainConfig, data: PreparedData) -> Run:
    """Return the scores of a run after its last step."""
    with tempfile.TemporaryDirectory() as scratch:
        trainer, _ = build_trainer(config, data, Path(scratch))
        trainer.checkpoints = None
        stopped_by = trainer.fit()
        trainer.prefetcher.close()
    if stopped_by is not None or trainer.last_scores is None:
        sys.exit("stopped; run the same command again to go on")
    return {name: trainer.last_scores[name] for name in _SCORES}


def list_rates(factors: Sequence[float]) -> list[dict[str, float]]:
    """Return the rates of all runs of a width, the recipe's once."""
    optim = resolve("auto").optim
    both = {name: getattr(optim, name) for name in RATES}
    changed = [both | {name: both[name] * f} for name, f in product(both, factors)]
    return [rates for number, rates in enumerate(changed) if rates not in changed[:number]]


def find_best(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the rate of the lowest loss by name and width, at the recipe's other rate.

    Of several seeds, the mean loss counts.
    """
    best = dict[str, dict[str, float]]()
    for name, other in (RATES, RATES[::-1]):
        losses = defaultdict[tuple[int, float], list[float]](list)
        for run in runs:
            if run[other] == getattr(resolve("auto").optim, other):
                losses[run["width"], run[name]].append(run["loss"])
        means = {key: fmean(each) for key, each in losses.items()}
        # The last rate of each width is that of the lowest mean.
        best[name] = {str(w): rate for w, rate in sorted(means, key=means.__getitem__)[::-1]}
    return best


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="prepared English Wikipedia")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the results of runs")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 192, 256, 384])
    parser.add_argument("--layers", type=int, default=2, help="[2]")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS, help="of the rates")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=250, help="[250]")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="[2048]")
    parser.add_argument("--device", default="cpu", help="[cpu]")


def main(arguments: argparse.Namespace) -> None:
    keep_freed_memory()  # as `maskwright pretrain` does
    arguments.runs.mkdir(parents=True, exist_ok=True)
    data, runs = PreparedData(arguments.data), list[Run]()
    shape = f"{arguments.layers}x{arguments.steps}x{arguments.batch_tokens}"
    for seed, width, rates in product(
        arguments.seeds, arguments.widths, list_rates(arguments.factors)
    ):
        name = "-".join(f"{value:g}" for value in (width, *rates.values(), seed))
        config = configure(width, rates, seed, arguments)
        scores = recall(arguments.runs / f"{shape}-{name}.json", partial(train, config, data))
        runs.append({"width": width, "seed": seed, **rates, **scores})
        print(name, f"{scores['loss']:.4f}", flush=True)
    conditions = {name: getattr(arguments, name) for name in _CONDITIONS}
    conditions["vocabulary"] = data.tokenizer.vocab_size
    write_result("rate-transfer", {**conditions, "best": find_best(runs), "runs": runs})
