"""Metrics under their GLUE names, F1 of entities, and ``results.json`` with its comparisons.

An undefined score (a correlation with a constant, an F1 of a label that neither occurs nor is
predicted) is NaN, null in files, and is shown as ``undefined``. N examples, K labels.
"""

import math
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
from maskwright.formatting import show_score
from maskwright.logs import Record

Metric = Literal[
    "accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman",
    "mean_squared_error", "exact_match", "mrr", "span_f1",
]  # fmt: skip
Scores = dict[str, float]
SavedScores = Mapping[str, float | None]  # None: undefined
Baselines = dict[str, Scores]  # by the name of the baseline
LOWER_IS_BETTER: frozenset[str] = frozenset({"mean_squared_error"})
BY_ERROR = ("regression",)  # tasks whose weights are selected by such a metric, by default
VALID_LOSS = "valid_loss"
RESULTS_NAME = "results.json"
_MAX_BYTES = 64 << 20


_CONSTANTS = {
    "multilabel": "the labels of more than half of the examples",
    "regression": "the mean of the numbers",
    "ranking": "one number for all passages",
    "tokens": "the most frequent tag",
    "spans": "no answer",
}
# In the order of what helped most in docs/howto/few-labels.md.
_BETTER_START = (
    "Try a published encoder first, such as hf:sentence-transformers/all-MiniLM-L6-v2 for English,"
    " then text of the task without labels (--unlabeled)"
)
_RIVALS = {
    "tokens": "logistic regression on words and their neighbors",
    "spans": "the words near those of the question",
}


def compute_metric(name: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    """Return a metric of label ids [N], of 0 and 1 for multi-label tasks [N, K], or of numbers [N].

    NaN if it is undefined, as in SciPy and scikit-learn. Matthews' correlation with constant
    predictions is 0, as in scikit-learn; if all examples have one label, it is undefined.
    """
    return _METRICS[name](true, found) if len(true) else math.nan


def _sklearn() -> Any:
    return import_extra("sklearn.metrics", "finetune", "fine-tuning")


def _matthews(true: NDArray[Any], found: NDArray[Any]) -> float:
    if len(np.unique(true)) < 2:
        return math.nan
    return float(_sklearn().matthews_corrcoef(true, found))


def _f1(average: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    if true.shape[1:] == (1,):  # one label of several a text can have
        average = "binary"
    return float(_sklearn().f1_score(true, found, average=average, zero_division=np.nan))


def _correlate(name: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    if np.ptp(true) == 0 or np.ptp(found) == 0:
        return math.nan  # SciPy warns
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
    """Precision, recall and F1 of entities, or of one label; NaN without a denominator.

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
        return self.num_right / self.num_found if self.num_found else math.nan

    @property
    def recall(self) -> float:
        return self.num_right / self.num_true if self.num_true else math.nan

    @property
    def f1(self) -> float:
        both = self.num_true + self.num_found
        return 2 * self.num_right / both if both else math.nan


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
    value = _as_number(scores[metric])
    return -value if metric in LOWER_IS_BETTER else value, -scores[VALID_LOSS]


def beats(metric: str, ours: float | None, theirs: float | None) -> bool:
    """Return True if one value of a metric is better than another."""
    ours, theirs = _as_number(ours), _as_number(theirs)
    return ours < theirs if metric in LOWER_IS_BETTER else ours > theirs


def _as_number(value: float | None) -> float:
    """Return a score to compare; an undefined one is 0, the correlation or F1 of no skill."""
    return 0.0 if value is None or math.isnan(value) else value


def is_perfect(metric: str, scores: Mapping[str, float]) -> bool:
    """Return True if a metric has its best possible value."""
    return scores[metric] == 0 if metric in LOWER_IS_BETTER else scores[metric] >= 1


def describe_scores(scores: Mapping[str, float]) -> str:
    """Return the scores as one line, without those of each kind of entity."""
    shown = {name: show_score(value) for name, value in scores.items() if "/" not in name}
    return "  ".join(f"{name} {value}" for name, value in shown.items())


class Summary(TypedDict):
    """Mean and standard deviation of a score over all runs; a single run has no deviation.

    The mean is None if the score of a run is undefined.
    """

    mean: float | None
    deviation: float | None


class ClassScores(TypedDict):
    """The scores of one label or kind of entity; `examples` counts its true occurrences."""

    precision: float | None
    recall: float | None
    f1: float | None
    examples: int


class SetResults(TypedDict):
    """The scores on one set of examples.

    `random_encoder` has the control's scores; `confusion_matrix` maps true label -> prediction ->
    count, without zeros. `classes` and `confusion_matrix` are the saved model's. `void` names the
    metrics that say nothing, because of the labels of the examples.
    """

    examples: NotRequired[int]
    void: NotRequired[list[str]]
    baselines: Mapping[str, SavedScores]
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


def read_deciding_score(run: Path) -> float | None:
    """Return the validation score that selected the weights of a run; that of vectors, too.

    None if it is undefined.
    """
    results = read_json(run / RESULTS_NAME, _MAX_BYTES)
    if "scores" in results:
        return results["scores"][results["deciding_metric"]]["mean"]
    return results["found" if "found" in results else "spearman"]


def summarize(runs: Sequence[Mapping[str, float]]) -> dict[str, Summary]:
    """Return mean and deviation of each score over runs.

    A kind of entity that a run lacks is neither in its examples nor predicted.
    """
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: _summarize([run.get(name, math.nan) for run in runs]) for name in names}


def _summarize(values: Sequence[float]) -> Summary:
    if any(map(math.isnan, values)):
        return {"mean": None, "deviation": None}
    return {"mean": mean(values), "deviation": stdev(values) if len(values) > 1 else None}


def get_judged(results: Results) -> SetResults:
    """Return the results on the test examples, or else on the validation examples."""
    found = results.get("test") or {"examples": results["valid_examples"], **results}
    return cast(SetResults, found)


def show_mean(found: Summary) -> str:
    """Return ``0.9012 ± 0.0034``, or the value of a single run, or ``undefined``."""
    deviation = found["deviation"]
    return show_score(found["mean"]) + (f" ± {deviation:.4f}" if deviation is not None else "")


def list_scores(results: SetResults | FoldResults) -> list[tuple[str, list[str]]]:
    """Return each metric with the scores of baselines, the random encoder if any, and the model.

    Scores of each kind of entity are omitted.
    """
    columns: list[Mapping[str, float | Summary | None]] = [*results["baselines"].values()]
    columns += [results["random_encoder"]] if "random_encoder" in results else []
    columns.append(results["scores"])
    names = [name for name in results["baselines"]["majority"] if "/" not in name]
    return [(name, [_show(column[name]) for column in columns]) for name in names]


def _show(score: float | Summary | None) -> str:
    return show_mean(score) if isinstance(score, dict) else show_score(score)


def describe_constant(task: str) -> str:
    """Return what the baseline ``majority`` of a task predicts."""
    return _CONSTANTS.get(task, "the most frequent label")


def describe_defeats(results: Results) -> list[str]:
    """Return a message for each baseline that the model does not beat."""
    metric, judged = results["deciding_metric"], get_judged(results)
    ours, baselines = judged["scores"][metric]["mean"], judged["baselines"]
    if metric in judged.get("void", ()):
        kind = "test" if "test" in results else "validation"
        return [f"{metric} says nothing, so no model is compared: {describe_void(kind)}"]
    lines, advice = list[str](), _advise(results["runs"])
    if not beats(metric, ours, baselines["majority"][metric]):
        constant = describe_constant(results["task"])
        lines.append(f"The model does not beat a constant prediction: {constant}. {advice}.")
    bag = baselines["bag of words"][metric]
    if beats(metric, bag, ours):
        name = _RIVALS.get(results["task"], "a bag of words")
        scores = f"{metric} {show_score(bag)}, this model {show_score(ours)}"
        lines.append(
            f"Better than this model: {name} ({scores}). {_BETTER_START}, or deploy that. {advice}."
        )
    return lines


def describe_void(kind: str) -> str:
    """Return why no score says anything about a set of examples, and what to do."""
    return (
        f"the labels of the {kind} examples are all equal, or none. Check them; hidden labels "
        "cannot be scored."
    )


def _advise(runs: Sequence[Record]) -> str:
    """Return what may raise the scores: more epochs only if these were not enough."""
    if any(run["num_steps"] < run.get("max_steps", 0) for run in runs):  # absent in older runs
        return "Early stopping ended a run: train all its epochs with --patience 0"
    if any(run["best_step"] > 0.9 * run["num_steps"] for run in runs):
        return "The scores still rose at the end: raise --epochs"
    return "More epochs do not help: give more examples, or try another --learning_rate"
