"""``results.json`` of a run, and the comparison with the baselines. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

from maskwright.files import read_json
from maskwright.finetuning.metrics import Baselines, Scores, beats
from maskwright.logs import Record

if TYPE_CHECKING:
    from maskwright.finetuning.fit import RunResult, SeedsResult
    from maskwright.finetuning.task import TaskData

RESULTS_NAME = "results.json"
_MAX_BYTES = 64 << 20


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


class SeedResults(TypedDict):
    """The fields of a `RunResult`."""

    seed: int
    scores: Scores
    test_scores: Scores
    best_step: int
    num_steps: int
    max_steps: int
    seconds: float
    history: list[Record]


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
    """``results.json``: the scores on the validation examples, and on the test examples if any."""

    task: str
    computation: dict[str, str]
    deciding_metric: str
    labels: dict[str, int]
    train_examples: int
    valid_examples: int
    skipped_rows: dict[str, int]
    runs: list[SeedResults]
    test: NotRequired[SetResults]
    folds: NotRequired[FoldResults]
    saved_seed: NotRequired[int]
    random_encoder_runs: NotRequired[list[SeedResults]]


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


def collect_results(data: "TaskData", seeds: "SeedsResult", computation: dict[str, str]) -> Results:
    """Return the results of all seeds, without scores by class and without the control."""
    results: Results = {
        "task": data.task.name,
        "computation": computation,
        "deciding_metric": data.deciding,
        "labels": dict(zip(data.labels.names, data.labels.counts, strict=True)),
        "train_examples": len(data.train.rows),
        "valid_examples": len(data.valid.rows),
        "skipped_rows": dict(data.skipped),
        "baselines": data.baselines,
        "scores": summarize([run.scores for run in seeds.runs]),
        "runs": _list_runs(seeds.runs),
    }
    if data.test is not None:
        results["test"] = {
            "examples": len(data.test.rows),
            "baselines": data.test_baselines,
            "scores": summarize([run.test_scores for run in seeds.runs]),
        }
    return results


def add_control(results: Results, control: "SeedsResult") -> None:
    """Add the scores of an encoder of the same shape that started from random weights."""
    results["random_encoder"] = summarize([run.scores for run in control.runs])
    results["random_encoder_runs"] = _list_runs(control.runs)
    if "test" in results:
        results["test"]["random_encoder"] = summarize([run.test_scores for run in control.runs])


def _list_runs(runs: "Sequence[RunResult]") -> list[SeedResults]:
    return [cast(SeedResults, asdict(run)) for run in runs]


def get_judged(results: Results) -> SetResults:
    """Return the results on the test examples, or else on the validation examples."""
    found = results.get("test") or {"examples": results["valid_examples"], **results}
    return cast(SetResults, found)


def show_mean(found: Summary) -> str:
    """Return ``0.9012 ± 0.0034``, or the value of a single run."""
    deviation = found["deviation"]
    return f"{found['mean']:.4f}" + (f" ± {deviation:.4f}" if deviation is not None else "")


def list_scores(results: SetResults) -> list[tuple[str, list[str]]]:
    """Return each metric with the scores of baselines, the random encoder if any, and the model.

    Scores of each kind of entity are omitted.
    """
    models = [results["random_encoder"]] if "random_encoder" in results else []
    models.append(results["scores"])
    rows: list[tuple[str, list[str]]] = []
    for name in results["baselines"]["majority"]:
        if "/" not in name:
            baselines = [f"{scores[name]:.4f}" for scores in results["baselines"].values()]
            rows.append((name, [*baselines, *(show_mean(model[name]) for model in models)]))
    return rows


def list_fold_scores(folds: FoldResults) -> list[tuple[str, list[str]]]:
    """Return each metric with the mean and deviation of the baselines and of the models."""
    columns = [*folds["baselines"].values(), folds["scores"]]
    names = [name for name in folds["baselines"]["majority"] if "/" not in name]
    return [(name, [show_mean(each[name]) for each in columns]) for name in names]


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


def _advise(runs: Sequence[SeedResults]) -> str:
    """Return what may raise the scores: more epochs only if these were not enough."""
    if any(run["num_steps"] < run.get("max_steps", 0) for run in runs):  # absent in older runs
        return "Early stopping ended a run: train all its epochs with --patience 0"
    if any(run["best_step"] > 0.9 * run["num_steps"] for run in runs):
        return "The scores still rose at the end: raise --epochs"
    return "More epochs do not help: give more examples, or try another --learning_rate"
