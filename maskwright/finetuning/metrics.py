"""Metrics of scikit-learn and scipy under their GLUE names, and F1 of entities.

N examples, K labels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.extras import import_extra
from maskwright.finetuning.conll import find_entities

Metric = Literal[
    "accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman",
    "mean_squared_error", "exact_match", "mrr",
]  # fmt: skip
Scores = dict[str, float]
Baselines = dict[str, Scores]  # by the name of the baseline
LOWER_IS_BETTER: frozenset[str] = frozenset({"mean_squared_error"})
VALID_LOSS = "valid_loss"


def compute_metric(name: str, true: NDArray[Any], found: NDArray[Any]) -> float:
    """Return one metric of predictions.

    Args:
        true, found: [N] label ids, [N, K] 0 or 1 for multi-label tasks, or [N] numbers.

    Returns:
        The metric; 0 for a correlation with constant predictions, which is undefined.
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
    """Return the entity scores over all sentences, and those of each kind of entity.

    seqeval does not support BILOU and BMES; a test compares the other schemes with it.

    Args:
        true, found: the true and the predicted tags of each sentence.
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
    """Return the scores of each label.

    Args:
        examples: for each example its true labels, the predicted labels, and those in both.
    """
    counts = (Counter[str](), Counter[str](), Counter[str]())
    for example in examples:
        for counter, names in zip(counts, example, strict=True):
            counter.update(names)
    return {
        name: SpanScores(*(counter[name] for counter in counts)) for name in counts[0] | counts[1]
    }


def is_better(metric: str, scores: Mapping[str, float], than: Mapping[str, float]) -> bool:
    """Return True if a metric is better, or equal with a lower loss.

    A small encoder may predict only the most frequent label for a while; then the loss alone shows
    progress.
    """
    ours, theirs = scores[metric], than[metric]
    if ours == theirs:
        return scores[VALID_LOSS] < than[VALID_LOSS]
    return beats(metric, ours, theirs)


def beats(metric: str, ours: float, theirs: float) -> bool:
    """Return True if one value of a metric is better than another."""
    return ours < theirs if metric in LOWER_IS_BETTER else ours > theirs


def is_perfect(metric: str, scores: Mapping[str, float]) -> bool:
    """Return True if a metric has its best possible value."""
    return scores[metric] == 0 if metric in LOWER_IS_BETTER else scores[metric] >= 1


def describe_scores(scores: Mapping[str, float]) -> str:
    """Return the scores as one line, without those of each kind of entity."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if "/" not in name)
