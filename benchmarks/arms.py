"""Train the arms of an experiment with several seeds, and score each run by the same text.

    MASKWRIGHT_DATA=… python -m benchmarks arms families --data DATA --runs runs/families

An arm is a named set of fields over those that all arms share; ``benchmarks/arms/NAME.yaml`` names
them. All runs have the same data, and the same masks in validation. A second call trains only what
has no result, and the result file has the arms that are done.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml

from benchmarks.common import find_corpus, recall, run_maskwright, write_result
from maskwright.evaluation.data import MinimalPair, read_minimal_pairs
from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer
from maskwright.evaluation.suite_blimp import evaluate_minimal_pairs
from maskwright.logs import read_metrics
from maskwright.runs.find_model import find_model_folder

_FOLDER = Path(__file__).parent / "arms"
_SCORES = ("loss", "masked_accuracy", "seen_mask_accuracy")
_COUNTS = ("step", "tokens", "seconds")
Scores = dict[str, Any]


def list_flags(fields: Mapping[str, Any]) -> list[str]:
    """Return the flags that set these fields; null is ``none``."""
    flags: list[str] = []
    for name, value in fields.items():
        flags += [f"--{name}", "none" if value is None else str(value)]
    return flags


def train(data: Path, run: Path, recipe: str, fields: Mapping[str, Any], seed: int) -> Scores:
    """Train one arm with one seed; return its last scores, and its losses on the way."""
    where = ("--name", run.name, "--runs-dir", run.parent, "--auto-resume")
    run_maskwright(
        "pretrain", data, "--recipe", recipe, *where, *list_flags(fields), "--seed", seed
    )
    valid = [one for one in read_metrics(run / "metrics.jsonl") if one["split"] == "valid"]
    last = {name: valid[-1][name] for name in (*_COUNTS, *_SCORES)}
    return {**last, "losses": [round(record["loss"], 4) for record in valid]}


def score_pairs(run: Path, pairs: Sequence[MinimalPair]) -> float:
    """Return the accuracy of the model of a run on minimal pairs."""
    scorer = PseudoLikelihoodScorer(find_model_folder(run), "cpu")
    result = evaluate_minimal_pairs(scorer.model, scorer.tokenizer, pairs, precision="fp32")
    return round(result.scores[0].value, 4)


def take_pairs(number: int) -> list[MinimalPair]:
    """Return the first `number` pairs of each paradigm of BLiMP; 0: none."""
    if not number:
        return []
    taken: dict[str, list[MinimalPair]] = {}
    for pair in read_minimal_pairs([find_corpus("blimp")]):
        taken.setdefault(pair.paradigm, []).append(pair)
    return [pair for pairs in taken.values() for pair in pairs[:number]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", choices=sorted(path.stem for path in _FOLDER.glob("*.yaml")))
    parser.add_argument("--data", type=Path, required=True, help="prepared English Wikipedia")
    parser.add_argument("--runs", type=Path, required=True, help="folder for runs and results")
    parser.add_argument("--arms", nargs="+", help="[all]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="[0 1]")
    parser.add_argument("--pairs", type=int, default=200, help="of each paradigm of BLiMP [200]")


def main(arguments: argparse.Namespace) -> None:
    content = yaml.safe_load((_FOLDER / f"{arguments.experiment}.yaml").read_text("utf-8"))
    arguments.runs.mkdir(parents=True, exist_ok=True)
    pairs, runs = take_pairs(arguments.pairs), list[Scores]()
    for seed, name in product(arguments.seeds, arguments.arms or content["arms"]):
        fields = {**content["fields"], **content["arms"][name]}
        run = arguments.runs / f"{name}-{seed}"
        work = partial(train, arguments.data, run, content["recipe"], fields, seed)
        scores = recall(arguments.runs / f"{name}-{seed}.json", work)
        if pairs:
            scored = arguments.runs / f"{name}-{seed}-{arguments.pairs}-pairs.json"
            scores["minimal_pairs"] = recall(scored, partial(score_pairs, run, pairs))
        runs.append({"arm": name, "seed": seed, **scores})
        print(name, seed, {key: scores[key] for key in scores if key != "losses"}, flush=True)
    means = {
        name: {
            key: round(fmean(run[key] for run in runs if run["arm"] == name), 4)
            for key in (*_SCORES, *(("minimal_pairs",) if pairs else ()))
        }
        for name in dict.fromkeys(run["arm"] for run in runs)
    }
    for name, each in means.items():
        print(name, each)
    conditions = {"threads": torch.get_num_threads(), "pairs": len(pairs), **content}
    write_result(f"arms-{arguments.experiment}", {**conditions, "means": means, "runs": runs})
