"""Score models on all minimal pairs of BLiMP, and measure how long that takes.

    MASKWRIGHT_DATA=… python -m benchmarks minimal-pairs runs/NAME runs/OTHER

Seconds are those of the scoring alone; a model is loaded before.
"""

import argparse
import time
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.common import find_corpus, write_result
from maskwright.evaluation.data import MinimalPair, read_minimal_pairs
from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer
from maskwright.evaluation.suite_blimp import evaluate_minimal_pairs
from maskwright.runs.find_model import find_model_folder
from maskwright.train.config import FixedPrecision


def measure(folder: Path, pairs: list[MinimalPair], precision: FixedPrecision) -> dict[str, Any]:
    """Return the accuracy on each group of pairs with its interval, and the seconds for all."""
    scorer = PseudoLikelihoodScorer(folder, "cpu")
    began, processor = time.perf_counter(), time.process_time()
    result = evaluate_minimal_pairs(scorer.model, scorer.tokenizer, pairs, precision=precision)
    return {
        "parameters": sum(parameter.numel() for parameter in scorer.model.parameters()),
        "precision": precision,
        "pairs": len(pairs),
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "accuracy": {
            score.name: [round(x, 4) for x in (score.value, score.low, score.high) if x is not None]
            for score in result.scores
        },
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", help="runs of pretraining, or model folders")
    parser.add_argument("--precision", choices=get_args(FixedPrecision), default="fp32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    pairs = read_minimal_pairs([find_corpus("blimp")])
    suffix = "" if arguments.precision == "fp32" else f"-{arguments.precision}"
    models = {
        f"{Path(run).name}{suffix}": measure(find_model_folder(run), pairs, arguments.precision)
        for run in arguments.runs
    }
    write_result(f"minimal-pairs{suffix}", {"threads": arguments.threads, "models": models})
