"""How good answers are: scikit-learn's and scipy's measures by the names of the GLUE benchmark.

N examples, K labels.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import ConfigError
from maskwright.extras import import_extra

Metric = Literal[
    "accuracy",
    "f1",
    "macro_f1",
    "micro_f1",
    "matthews",
    "pearson",
    "spearman",
    "mean_squared_error",
]

# For each task the first is what early stopping looks at, if nothing else is asked for.
TASK_METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "multilabel": ("micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson", "mean_squared_error"),
}
# What else has a meaning there; f1 is that of the second of two labels.
OTHER_METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classification": ("f1", "micro_f1"),
    "multilabel": ("accuracy",),
    "regression": (),
    "tokens": ("accuracy",),
}
LOWER_IS_BETTER: frozenset[Metric] = frozenset({"mean_squared_error"})


def compute_metric(name: Metric, true: NDArray[Any], found: NDArray[Any]) -> float:
    """One measure of answers.

    Args:
        true, found: [N] ids of labels, [N, K] 0 or 1 for several labels at once, or [N] numbers.

    Returns:
        The measure; 0 of a correlation with answers that are all the same, which has none.
    """
    return _METRICS[name](true, found)


def _sklearn() -> Any:
    return import_extra("sklearn.metrics", "finetune", "fine-tuning")


def check_metric(name: Metric, task: str, num_labels: int) -> None:
    """Lets pass a measure that the answers of a task have.

    Raises:
        ConfigError: it has no meaning there.
    """
    fitting = [*TASK_METRICS.get(task, ()), *OTHER_METRICS[task]]
    if num_labels != 2 and "f1" in fitting:
        fitting.remove("f1")
    if name not in fitting:
        what = f"{task} of {num_labels} labels" if task == "classification" else task
        rule = f"is no measure of {what}"
        raise ConfigError("metric", name, rule, f"Choose from {', '.join(fitting)}.")


def _accuracy(true: NDArray[Any], found: NDArray[Any]) -> float:
    right = true == found
    return float(np.mean(right.all(axis=1) if right.ndim > 1 else right))


def _f1(average: str) -> Callable[[NDArray[Any], NDArray[Any]], float]:
    def compute(true: NDArray[Any], found: NDArray[Any]) -> float:
        return float(_sklearn().f1_score(true, found, average=average, zero_division=0))

    return compute


def _matthews(true: NDArray[Any], found: NDArray[Any]) -> float:
    if len(np.union1d(true, found)) < 2:
        return 0.0  # of which scikit-learn warns
    return float(_sklearn().matthews_corrcoef(true, found))


def _correlation(name: str) -> Callable[[NDArray[Any], NDArray[Any]], float]:
    def compute(true: NDArray[Any], found: NDArray[Any]) -> float:
        if np.ptp(true) == 0 or np.ptp(found) == 0:
            return 0.0
        stats: Any = import_extra("scipy.stats", "finetune", "correlations")
        return float(getattr(stats, name)(true, found).statistic)

    return compute


def _mean_squared_error(true: NDArray[Any], found: NDArray[Any]) -> float:
    return float(np.mean((true - found) ** 2))


_METRICS: Mapping[Metric, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": _accuracy,
    "f1": _f1("binary"),
    "macro_f1": _f1("macro"),
    "micro_f1": _f1("micro"),
    "matthews": _matthews,
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
    "mean_squared_error": _mean_squared_error,
}
