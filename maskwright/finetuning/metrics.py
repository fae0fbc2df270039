"""Metrics under their GLUE names, F1 of entities, and ``results.json`` with its comparisons.

N examples, K labels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.files import read_json
from maskwright.finetuning.conll import find_entities
from maskwright.logs import Record

Metric = Literal[
    "accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman",
    "mean_squared_error", "exact_match", "mrr", "span_f1",
]  # fmt: skip
Scores = dict[str, float]
Baselines = dict[str, Scores]  # by the name of the baseline
LOWER_IS_BETTER: frozenset[str] = frozenset({"mean_squared_error"})
VALID_LOSS = "valid_loss"
RESULTS_NAME = "results.json"
_MAX_BYTES = 64 << 20


def compute_metric(name: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    """Return a metric of label ids [N], of 0 and 1 for multi-label tasks [N, K], or of numbers [N].

    A correlation with constant predictions, which is undefined, is 0.
    """
    return _METRICS[name](true, found)


def _sklearn() -> Any:
    return import_extra("sklearn.metrics", "finetune", "fine-tuning")


def _matthews(true: NDArray[Any], found: NDArray[Any]) -> float:
    if len(np.union1d(true, found)) < 2:
        return 0.0  # scikit-learn warns about a single label
    return float(_sklearn().matthews_corrcoef(true, found))


def _f1(average: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    if true.shape[1:] == (1,):  # one label of several a text can have
        average = "binary"
    return float(_sklearn().f1_score(true, found, average=average, zero_division=0))


def _correlate(name: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    if np.ptp(true) == 0 or np.ptp(found) == 0:
        return 0.0
    stats: Any = import_extra("scipy.stats", "finetune", "correlations")
    return float(getattr(stats, name)(true, found).statistic)


_METRICS: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": lambda true, found: float(_sklearn().accuracy_score(true, found)),
    "f1": partial(_f1, "binary"),
    "macro_f1": partial(_f1, "macro"),
    "micro_f1": partial(_f1, "micro"),
    "matthews": _matthews,
    "pearson": partial(_correlate, "pearsonr"),
    "spearman": partial(_correlate, "spearmanr"),
    "mean_squared_error": lambda true, found: float(np.square(true - found, dtype="f8").mean()),
}


@dataclass(frozen=True)
class SpanScores:
    """Precision, recall and F1 of entities, or of one label.

    Attributes:
        num_true: the number in the examples.
        num_found: the number that the model predicts.
        num_right: the number of correct predictions (kind, beginning and end).
    """

    num_true: int
    num_found: int
    num_right: int

    @property
    def precision(self) -> float:
        return self.num_right / self.num_found if self.num_found else 0.0

    @property
    def recall(self) -> float:
        return self.num_right / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        both = self.num_true + self.num_found
        return 2 * self.num_right / both if both else 0.0


def score_spans(
    true: Iterable[Sequence[str]], found: Iterable[Sequence[str]]
) -> tuple[SpanScores, dict[str, SpanScores]]:
    """Return the scores of all entities of tagged sentences, and those of each kind of entity.

    seqeval does not support BILOU and BMES; a test compares the other schemes with it.
    """
    pairs = [({*find_entities(t)}, {*find_entities(f)}) for t, f in zip(true, found, strict=True)]
    each = score_sets(
        ((entity.kind for entity in entities) for entities in (t, f, t & f)) for t, f in pairs
    )
    sums = (
        sum(getattr(one, name) for one in each.values())
        for name in ("num_true", "num_found", "num_right")
    )
    return SpanScores(*sums), dict(sorted(each.items()))


def score_sets(examples: Iterable[Iterable[Iterable[str]]]) -> dict[str, SpanScores]:
    """Return the scores of each label, from the true, predicted and right ones of examples."""
    counts = (Counter[str](), Counter[str](), Counter[str]())
    for example in examples:
        for counter, names in zip(counts, example, strict=True):
            counter.update(names)
    return {
        name: SpanScores(*(counter[name] for counter in counts)) for name in counts[0] | counts[1]
    }


def rank(metric: str, scores: Mapping[str, float]) -> tuple[float, float]:
    """Return a key that is larger for a better metric or, if it is equal, for a lower loss.

    A small encoder may predict only the most frequent label for a while; then the loss alone shows
    progress.
    """
    value = scores[metric]
    return -value if metric in LOWER_IS_BETTER else value, -scores[VALID_LOSS]


def beats(metric: str, ours: float, theirs: float) -> bool:
    """Return True if one value of a metric is better than another."""
    return ours < theirs if metric in LOWER_IS_BETTER else ours > theirs


def is_perfect(metric: str, scores: Mapping[str, float]) -> bool:
    """Return True if a metric has its best possible value."""
    return scores[metric] == 0 if metric in LOWER_IS_BETTER else scores[metric] >= 1


def describe_scores(scores: Mapping[str, float]) -> str:
    """Return the scores as one line, without those of each kind of entity."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if "/" not in name)


class Summary(TypedDict):
    """Mean and standard deviation of a score over all runs; a single run has no deviation."""

    mean: float
    deviation: float | None


class ClassScores(TypedDict):
    """The scores of one label or kind of entity; `examples` counts its true occurrences."""

    precision: float
    recall: float
    f1: float
    examples: int


class SetResults(TypedDict):
    """The scores on one set of examples.

    `random_encoder` has the control's scores; `confusion_matrix` maps true label -> prediction ->
    count, without zeros. `classes` and `confusion_matrix` are the saved model's.
    """

    examples: NotRequired[int]
    baselines: Baselines
    scores: dict[str, Summary]
    classes: NotRequired[dict[str, ClassScores]]
    confusion_matrix: NotRequired[dict[str, dict[str, int]]]
    random_encoder: NotRequired[dict[str, Summary]]


class FoldResults(TypedDict):
    """Scores of the models and the baselines of all folds, with deviations between folds."""

    count: int
    examples: int
    baselines: dict[str, dict[str, Summary]]
    scores: dict[str, Summary]


class Results(SetResults):
    """``results.json``: the scores on the validation examples, and on the test examples if any.

    A run has the fields of a `fit.RunResult`.
    """

    task: str
    computation: dict[str, str]
    deciding_metric: str
    labels: dict[str, int]
    train_examples: int
    valid_examples: int
    skipped_rows: dict[str, int]
    runs: list[Record]
    test: NotRequired[SetResults]
    folds: NotRequired[FoldResults]
    saved_seed: NotRequired[int]
    random_encoder_runs: NotRequired[list[Record]]


def read_results(run: Path) -> Results | None:
    """Return the results of a run directory, or None if its task has no labels."""
    results = read_json(run / RESULTS_NAME, _MAX_BYTES)
    return cast(Results, results) if "scores" in results else None


def read_deciding_score(run: Path) -> float:
    """Return the validation score that selected the weights of a run; that of vectors, too."""
    results = read_json(run / RESULTS_NAME, _MAX_BYTES)
    if "scores" in results:
        return results["scores"][results["deciding_metric"]]["mean"]
    return results["found" if "found" in results else "spearman"]


def summarize(runs: Sequence[Mapping[str, float]]) -> dict[str, Summary]:
    """Return mean and deviation of each score over runs."""
    values = {name: [run.get(name, 0.0) for run in runs] for name in runs[0]}
    return {
        name: {"mean": mean(found), "deviation": stdev(found) if len(found) > 1 else None}
        for name, found in values.items()
    }


def get_judged(results: Results) -> SetResults:
    """Return the results on the test examples, or else on the validation examples."""
    found = results.get("test") or {"examples": results["valid_examples"], **results}
    return cast(SetResults, found)


def show_mean(found: Summary) -> str:
    """Return ``0.9012 ± 0.0034``, or the value of a single run."""
    deviation = found["deviation"]
    return f"{found['mean']:.4f}" + (f" ± {deviation:.4f}" if deviation is not None else "")


def list_scores(results: SetResults | FoldResults) -> list[tuple[str, list[str]]]:
    """Return each metric with the scores of baselines, the random encoder if any, and the model.

    Scores of each kind of entity are omitted.
    """
    columns: list[Mapping[str, float | Summary]] = [*results["baselines"].values()]
    columns += [results["random_encoder"]] if "random_encoder" in results else []
    columns.append(results["scores"])
    names = [name for name in results["baselines"]["majority"] if "/" not in name]
    return [(name, [_show(column[name]) for column in columns]) for name in names]


def _show(score: float | Summary) -> str:
    return f"{score:.4f}" if isinstance(score, float | int) else show_mean(score)


def describe_defeats(results: Results) -> list[str]:
    """Return a message for each baseline that the model does not beat."""
    metric, judged = results["deciding_metric"], get_judged(results)
    ours, baselines = judged["scores"][metric]["mean"], judged["baselines"]
    lines, advice = list[str](), _advise(results["runs"])
    if not beats(metric, ours, baselines["majority"][metric]):
        lines.append(
            f"The model does not beat a constant prediction of the most frequent label. {advice}."
        )
    bag = baselines["bag of words"][metric]
    if beats(metric, bag, ours):
        lines.append(
            f"A bag of words is better: {metric} {bag:.4f}, this model {ours:.4f}. {advice}, or "
            "deploy the bag of words."
        )
    return lines


def _advise(runs: Sequence[Record]) -> str:
    """Return what may raise the scores: more epochs only if these were not enough."""
    if any(run["num_steps"] < run.get("max_steps", 0) for run in runs):  # absent in older runs
        return "Early stopping ended a run: train all its epochs with --patience 0"
    if any(run["best_step"] > 0.9 * run["num_steps"] for run in runs):
        return "The scores still rose at the end: raise --epochs"
    return "More epochs do not help: give more examples, or try another --learning_rate"
