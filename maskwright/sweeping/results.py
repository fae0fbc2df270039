"""The results of an experiment: scores of its runs, differences of its arms, and what to claim."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

import numpy as np

from maskwright.errors import InputError, TrainingError, suggest
from maskwright.evaluation.difference_tables import explain_roles, tabulate_groups
from maskwright.evaluation.seeds import (
    SeedDifference,
    compare_groups,
    compare_pairs,
    count_seeds_needed,
    decide_differences,
    find_detectable,
    mean_interval_of_seeds,
)
from maskwright.evaluation.suites import load_suite
from maskwright.files import JsonObject, read_json, read_object, write_json, write_text
from maskwright.finetuning.metrics import (
    RESULTS_NAME,
    get_judged,
    read_deciding_score,
    read_results,
)
from maskwright.formatting import count_noun, show_number
from maskwright.logs import read_metrics
from maskwright.objectives.scores import LOSS, MASKED_LM_SCORES
from maskwright.provenance import Environment, describe_environment
from maskwright.report.charts import Curve, draw_learning, has_matplotlib, plot_curves
from maskwright.report.tables import ResultTable, render_tables
from maskwright.runs.evaluation_file import FORMAT, to_plain
from maskwright.runs.run_directory import METRICS_NAME, REPORT_NAME
from maskwright.sweeping.plan import (
    Plan,
    find_incomparable,
    find_suites,
    locate_choices,
    scores_pairs,
)

RESULT_NAME = "experiment.json"
TABLE_NAMES = ("tables.md", "tables.tex")
_BLIMP = "blimp/mean_over_paradigms"
_COUNTS = ("step", "tokens", "seconds")
_MAX_BYTES = 1 << 28
_MIN_RUNS = 2


class RunRecord(TypedDict):
    """A run of an experiment: its scores by name, and what it cost."""

    arm: str
    seed: int
    folder: str
    scores: dict[str, float]
    costs: dict[str, float]
    failed: NotRequired[str]


class ArmDifference(TypedDict):
    """The scores of an arm minus those of the first one, over the seeds that both have.

    Each score has its ``name`` and the fields of `maskwright.evaluation.seeds.SeedDifference` and
    ``Verdict``; the primary score is the first. ``over``: ``seeds``, or ``seeds and pairs``.
    """

    arm: str
    against: str
    seeds: list[int]
    scores: list[JsonObject]


class Experiment(TypedDict):
    """The content of ``experiment.json``."""

    format: int
    environment: Environment
    date: str
    plan: JsonObject
    primary: str
    runs: list[RunRecord]
    arms: dict[str, dict[str, JsonObject]]
    differences: list[ArmDifference]
    claims: list[str]


def is_trained(command: str, run: Path) -> bool:
    """Return True if a run has its final scores."""
    if command == "finetune":
        return (run / RESULTS_NAME).exists()
    return any(record.get("final") for record in read_metrics(run / METRICS_NAME))


def has_result(command: str, out: Path) -> bool:
    """Return True if a run, or the file of an evaluation, is complete."""
    return out.exists() if command == "evaluate" else is_trained(command, out)


def check_primary(plan: Plan) -> None:
    """Raise InputError if the plan's primary score cannot come out of it, or cannot be compared."""
    names = [line.name for line in MASKED_LM_SCORES] if plan.command == "pretrain" else []
    by_suite = [name for then in plan.then for name in _list_headlines(then)]
    varied = find_incomparable(plan)
    if varied is not None and (plan.command == "finetune" or plan.primary not in by_suite):
        raise InputError(
            f"{varied} differs between the arms, so their losses are not comparable. Add a suite "
            "with --then, and name its score with --primary, as in "
            f"--then 'evaluate --suite blimp' --primary {_BLIMP}."
        )
    is_open = plan.command == "finetune" or any(then[0] == "finetune" for then in plan.then)
    if plan.primary is not None and plan.primary not in (*names, *by_suite) and not is_open:
        valid = [*names, *by_suite]
        raise suggest("score", plan.primary, valid, f"--primary is one of {', '.join(valid)}")


def _list_headlines(then: Sequence[str]) -> list[str]:
    return [name for suite in find_suites(then) for name in load_suite(suite).headlines]


def analyze(plan: Plan, failed: Mapping[tuple[str, int], Path] | None = None) -> Experiment:
    """Return the scores of all runs, and the difference of each arm from the first one.

    Args:
        plan: the experiment.
        failed: the logs of runs that failed.

    Raises:
        InputError: the primary score is in no run.
        TrainingError: no run has a score.
    """
    logs = failed or {}
    runs = [_read_run(plan, arm, seed, logs) for arm in plan.arms for seed in plan.seeds]
    found = list(dict.fromkeys(name for run in runs for name in run["scores"]))
    if not found:
        log = next(iter(logs.values()), plan.out)
        raise TrainingError(f"no run has a score; see {log}. Remove the cause and repeat it.")
    primary = plan.primary or (LOSS.name if LOSS.name in found else found[0])
    if primary not in found:
        raise suggest("score", primary, found, f"--primary is one of {', '.join(found)}")
    names = [primary, *(name for name in found if name != primary)]
    differences = _subtract(plan, runs, names, primary)
    return {
        "format": FORMAT,
        "environment": describe_environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": plan.describe(),
        "primary": primary,
        "runs": runs,
        "arms": {arm: _summarize(arm, runs, names) for arm in plan.arms},
        "differences": differences,
        "claims": [_claim(one, plan) for one in differences],
    }


def _read_run(plan: Plan, arm: str, seed: int, failed: Mapping[tuple[str, int], Path]) -> RunRecord:
    run = plan.locate_run(arm, seed)
    scores, costs = dict[str, float](), dict[str, float]()
    if is_trained(plan.command, run):
        if plan.command == "finetune":
            scores = _read_task(run, "")
        else:
            last = [record for record in read_metrics(run / METRICS_NAME) if record.get("final")][
                -1
            ]
            costs = {name: last[name] for name in _COUNTS if name in last}
            if find_incomparable(plan) is None:
                scores = {
                    line.name: last[line.name] for line in MASKED_LM_SCORES if line.name in last
                }
    tasks = 0
    for then in plan.then:
        out = plan.locate_then(arm, seed, then)
        tasks += then[0] == "finetune"
        if has_result(then[0], out):
            number = f"-{tasks}" if tasks > 1 else ""
            scores |= (
                _read_suites(out)
                if then[0] == "evaluate"
                else _read_task(out, f"finetune{number}/")
            )
    scores = {name: value for name, value in scores.items() if np.isfinite(value)}
    record: RunRecord = {
        "arm": arm, "seed": seed, "folder": run.name, "scores": scores, "costs": costs,
    }  # fmt: skip
    if (arm, seed) in failed:
        record["failed"] = failed[arm, seed].name
    return record


def _read_suites(out: Path) -> dict[str, float]:
    """Return the most important scores in the results of ``evaluate``."""
    found: dict[str, float] = {}
    for suite in read_object(out, _MAX_BYTES)["suites"]:
        prefix = f"{suite['suite']}/"
        values = {
            prefix + score["name"].removeprefix(prefix): score["value"]
            for score in suite["scores"]
            if score["value"] is not None
        }
        headlines = load_suite(suite["suite"]).headlines
        found |= {name: values[name] for name in headlines if name in values}
    return found


def _read_task(run: Path, prefix: str) -> dict[str, float]:
    """Return the deciding metric of fine-tuning, on the test examples if there are any."""
    results = read_results(run)
    if results is None:
        name, value = "score", read_deciding_score(run)
    else:
        name = results["deciding_metric"]
        value = get_judged(results)["scores"][name]["mean"]
    return {} if value is None else {prefix + name: value}


def _summarize(arm: str, runs: Sequence[RunRecord], names: Sequence[str]) -> dict[str, JsonObject]:
    """Return mean, deviation and interval of the mean of each score of an arm."""
    found: dict[str, JsonObject] = {}
    for name in names:
        own = [run["scores"][name] for run in runs if run["arm"] == arm and name in run["scores"]]
        if own:
            values = np.array(own)
            low, high = mean_interval_of_seeds(values) or (None, None)
            deviation = float(values.std(ddof=1)) if len(own) > 1 else None
            found[name] = {
                "mean": float(values.mean()), "deviation": deviation, "low": low, "high": high,
                "num_runs": len(own),
            }  # fmt: skip
    return found


def _subtract(
    plan: Plan, runs: Sequence[RunRecord], names: Sequence[str], primary: str
) -> list[ArmDifference]:
    """Return the difference of each arm from the first, of two seeds or more that both have."""
    first, *others = plan.arms
    by_run = {(run["arm"], run["seed"]): run["scores"] for run in runs}
    found: list[dict[str, tuple[SeedDifference, list[int]]]] = []
    for arm in others:
        of_arm: dict[str, tuple[SeedDifference, list[int]]] = {}
        for name in names:
            seeds = [
                seed
                for seed in plan.seeds
                if name in by_run[arm, seed] and name in by_run[first, seed]
            ]
            if len(seeds) >= _MIN_RUNS:
                ours, theirs = (
                    np.array([by_run[one, seed][name] for seed in seeds]) for one in (arm, first)
                )
                pairs = _compare_choices(plan, arm, first, seeds) if name == _BLIMP else None
                of_arm[name] = pairs or compare_groups(ours, theirs, is_paired=True), seeds
        found.append(of_arm)
    verdicts = decide_differences(
        [{n: one.p_value for n, (one, _) in own.items()} for own in found], primary
    )
    return [
        {
            "arm": arm,
            "against": first,
            "seeds": own[primary][1] if primary in own else [],
            "scores": to_plain(
                [
                    {
                        "name": name,
                        "over": "seeds and pairs" if name == _BLIMP else "seeds",
                        **asdict(own[name][0]),
                        **asdict(verdict),
                    }
                    for name, verdict in judged.items()
                ]
            ),
        }
        for arm, own, judged in zip(others, found, verdicts, strict=True)
    ]


def _compare_choices(plan: Plan, arm: str, first: str, seeds: Sequence[int]) -> SeedDifference:
    """Return the difference of two arms on minimal pairs, over seeds and pairs."""
    then = next(one for one in plan.then if scores_pairs(one))
    groups: list[list[list[float]]] = []
    strata: list[int] = []
    for one in (arm, first):
        groups.append([])
        for seed in seeds:
            path = locate_choices(plan.locate_then(one, seed, then))
            choices = cast(dict[str, list[float]], read_json(path, _MAX_BYTES)["choices"])
            groups[-1].append([credit for credits in choices.values() for credit in credits])
            strata = [n for n, credits in enumerate(choices.values()) for _ in credits]
    ours, theirs = (np.array(group) for group in groups)
    return compare_pairs(ours, theirs, np.array(strata))


def _claim(difference: ArmDifference, plan: Plan) -> str:
    """Return the sentence that may be claimed, and how many seeds the next difference needs."""
    arm, first, seeds = difference["arm"], difference["against"], difference["seeds"]
    if not difference["scores"] or not difference["scores"][0]["is_primary"]:
        return (
            f"Nothing may be claimed about {arm} and {first}: the primary score has fewer than two "
            "seeds in both. Raise --seeds."
        )
    score = difference["scores"][0]
    name, value, low, high = (score[key] for key in ("name", "value", "low", "high"))
    count = count_noun(len(seeds), "seed")
    after = f"{', '.join(map(str, seeds))}; over {score['over']}"
    if score["differs"]:
        verb = "raises" if value > 0 else "lowers"
        ends = sorted((abs(low), abs(high)))
        sentence = (
            f"{arm} {verb} {name} by {_show(abs(value))} against {first} (95 % interval "
            f"{_show(ends[0])} to {_show(ends[1])}, {count}: {after})."
        )
    else:
        sentence = (
            f"No difference in {name} between {arm} and {first} may be claimed: "
            f"{_show(value, '+')} (95 % interval {_show(low, '+')} to {_show(high, '+')}, "
            f"{count}: {after})."
        )
    return f"{sentence} {_plan_next(value, score['deviation'], len(seeds), score['differs'])}"


def _plan_next(value: float, deviation: float, num_seeds: int, differs: bool) -> str:
    """Return how small a difference these seeds find, and how many seeds the next one needs."""
    if not deviation:
        return "The difference is the same in all seeds."
    detectable = find_detectable(deviation, num_seeds, is_paired=True)
    next_one = abs(value) / 2 if differs else abs(value)
    what = "half as large" if differs else "as large as the one seen"
    needed = count_seeds_needed(next_one, deviation, is_paired=True)
    number = "more than 1,000 seeds" if needed is None else count_noun(needed, "seed")
    return (
        f"In four of five experiments, {num_seeds} seeds find a difference of {_show(detectable)}; "
        f"one {what}, {_show(next_one)}, needs {number}. So few seeds know their deviation roughly."
    )


def _show(value: float, sign: str = "") -> str:
    return f"{value:{sign}.4f}"


def tabulate_experiment(found: Experiment) -> list[ResultTable]:
    """Return the tables: the arms, and the difference of each from the first.

    Args:
        found: of `maskwright.experiment`.
    """
    primary = found["primary"]
    names = list(dict.fromkeys(name for scores in found["arms"].values() for name in scores))
    rows: list[tuple[str, ...]] = []
    for arm, scores in found["arms"].items():
        own = [run for run in found["runs"] if run["arm"] == arm and run["scores"]]
        minutes = [run["costs"]["seconds"] / 60 for run in own if "seconds" in run["costs"]]
        shown = f"{np.mean(minutes):.1f}" if minutes else ""
        rows.append((arm, str(len(own)), shown, *(_show_mean(scores.get(n)) for n in names)))
    fields = "; ".join(
        f"{arm}: {', '.join(f'{k} {v}' for k, v in own.items()) or 'as given'}"
        for arm, own in found["plan"]["arms"].items()
    )
    titles = ("arm", "runs", "minutes", *names)
    table = ResultTable("Arms", "mean ± deviation over seeds", titles, tuple(rows), fields)
    differences = [one for one in found["differences"] if one["scores"]]
    below = explain_roles(primary, [one["scores"] for one in differences])
    if any(score["over"] != "seeds" for one in differences for score in one["scores"]):
        below += f". {_BLIMP}: over seeds and pairs"
    return [table] + [
        tabulate_groups(
            f"{one['arm']} minus {one['against']}", one["scores"], below, is_paired=True
        )
        for one in differences
    ]


def _show_mean(summary: Mapping[str, Any] | None) -> str:
    if summary is None:
        return ""
    mean, deviation = show_number(summary["mean"]), summary["deviation"]
    return mean if deviation is None else f"{mean} ± {deviation:.4f}"


def write_results(plan: Plan, found: Experiment) -> None:
    """Write ``experiment.json``, the tables as Markdown and LaTeX, the page and the plot."""
    write_json(plan.out / RESULT_NAME, found)
    tables = tabulate_experiment(found)
    writers = (ResultTable.write_markdown, ResultTable.write_latex)
    for name, write in zip(TABLE_NAMES, writers, strict=True):
        write_text(plan.out / name, "\n".join(map(write, tables)))
    curves = _list_curves(plan)
    charts: list[tuple[str, str]] = []
    if curves and has_matplotlib():
        note = "Validation scores. Line: mean of the seeds. Band: from the smallest to the largest."
        plot_curves(curves, plan.out, note)
        charts = [(f"Curves by {cost}", svg) for cost, svg in draw_learning(curves).items()]
    page = render_tables(plan.out.name, tables, charts, found["claims"])
    write_text(plan.out / REPORT_NAME, page)


def _list_curves(plan: Plan) -> list[Curve]:
    """Return a curve of the validations of each arm, with those of its seeds."""
    if plan.command == "finetune" or find_incomparable(plan) is not None:
        return []
    curves: list[Curve] = []
    for arm in plan.arms:
        runs = [
            [one for one in read_metrics(plan.locate_run(arm, s) / METRICS_NAME) if "loss" in one]
            for s in plan.seeds
            if is_trained(plan.command, plan.locate_run(arm, s))
        ]
        valid = [[one for one in run if one["split"] == "valid"] for run in runs]
        if valid:
            curves.append(Curve(f"{arm} ({count_noun(len(valid), 'run')})", [], valid))
    return curves
