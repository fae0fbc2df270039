"""Tables of differences between models or groups of runs, with the primary score first."""

from collections.abc import Mapping, Sequence
from typing import Any

from maskwright.formatting import UNDEFINED, count_noun, show_number, show_score
from maskwright.objectives.scores import MASKED_LM_SCORES
from maskwright.report.tables import ResultTable

_BITS_PER_CHARACTER = "bits_per_character"
_SHOWN = (*(line.suite_name for line in MASKED_LM_SCORES), _BITS_PER_CHARACTER)
_MODEL_TITLES = ("model", "parameters", "steps", "tokens", "minutes", *_SHOWN)
_TITLES = ("score", "difference", "95 % interval", "p", "")
_GROUP_TITLES = ("score", "mean", "against", "difference", "deviation", "95 % interval", "p", "")


def tabulate_comparison(comparison: Mapping[str, Any]) -> list[ResultTable]:
    """Return the tables of a comparison: the models, and each difference.

    Args:
        comparison: the result of `maskwright.compare`.
    """
    models = comparison["models"]
    tables = [ResultTable(_describe_task(models), "", _MODEL_TITLES, tuple(_list_models(models)))]
    groups, pairs = comparison.get("difference_of_groups"), comparison["differences_from_first"]
    scores = [groups["scores"]] if groups else [one["scores"] for one in pairs]
    below = explain_roles(comparison["primary"], scores)
    if groups:
        title = "{} runs minus {} of --against".format(*groups["num_runs"])
        is_paired = groups["is_paired"]
        return [*tables, tabulate_groups(title, groups["scores"], below, is_paired=is_paired)]
    for one in pairs:
        names = one["name"], models[0]["name"]
        tables.append(tabulate_model(*names, one["scores"], below, is_paired=one["is_paired"]))
    return tables


def tabulate_model(
    name: str, first: str, scores: Sequence[Mapping[str, Any]], below: str, *, is_paired: bool
) -> ResultTable:
    """Return the table of a model minus the first one.

    Args:
        name, first: the names of the models.
        scores: differences with the fields of `maskwright.evaluation.seeds.Verdict`.
        below: the line of `explain_roles`.
        is_paired: True if both models have the same masks.
    """
    rows = tuple(
        (score["name"], _show_difference(score["value"]), *_show_test(score)) for score in scores
    )
    how = "paired by row" if is_paired else "not paired: other masks"
    return ResultTable(f"{name} minus {first}", f"({how})", _TITLES, rows, below)


def tabulate_groups(
    title: str, scores: Sequence[Mapping[str, Any]], below: str, *, is_paired: bool
) -> ResultTable:
    """Return the table of the means of a group of runs minus those of another.

    Args:
        title: names both groups.
        scores: the fields of `maskwright.evaluation.seeds.SeedDifference` and ``Verdict``.
        below: the line of `explain_roles`.
        is_paired: True if both groups have the same seeds.
    """
    rows = tuple(
        (
            score["name"],
            *(show_number(score[name]) for name in ("mean", "mean_against")),
            _show_difference(score["value"]),
            show_score(score["deviation"]),
            *_show_test(score),
        )
        for score in scores
    )
    how = "paired by seed" if is_paired else "not paired: the seeds differ"
    return ResultTable(title, f"({how})", _GROUP_TITLES, rows, below)


def explain_roles(primary: str, comparisons: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Return the line below a table of differences: which tests were made, and how adjusted.

    Args:
        primary: the score that was chosen beforehand.
        comparisons: the scores of each table of the output.
    """
    tested = [one for scores in comparisons for one in scores if one["p_value"] is not None]
    others = sum(not one["is_primary"] for one in tested)
    line = f"primary score: {primary}"
    if len(comparisons) > 1:
        line += f", p adjusted (Holm) for {len(comparisons)} comparisons"
    if not others:
        return f"{line}. differs: p ≤ 0.05"
    return (
        f"{line}. The others are exploratory: p adjusted (Holm) for {count_noun(others, 'test')}. "
        "differs: p ≤ 0.05. Each interval is of its score alone, not adjusted"
    )


def _show_difference(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:+.4f}"


def _show_test(score: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return interval, adjusted p-value and verdict as they are shown."""
    low, high, p = score["low"], score["high"], score["p_adjusted"]
    interval = "" if low is None or high is None else f"{low:+.4f} to {high:+.4f}"
    shown = "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
    return interval, shown, "differs" if score["differs"] else ""


def _share_masks(models: Sequence[Mapping[str, Any]]) -> bool:
    return len({one["mlm"]["settings"]["masks_sha256"] for one in models}) == 1


def _list_models(models: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a line for each model, without the scores that cannot be compared."""
    comparable = _SHOWN if _share_masks(models) else (_BITS_PER_CHARACTER,)
    lines: list[tuple[str, ...]] = []
    for one in models:
        last, seconds = one["last_validation"], one["last_validation"].get("seconds")
        values = {score["name"]: score["value"] for score in one["mlm"]["scores"]}
        known = {name: value for name, value in values.items() if name in comparable}
        counts = [last.get(name) for name in ("step", "tokens")]
        lines.append(
            (
                one["name"],
                f"{one['num_parameters']:,}",
                *(f"{count:,}" if isinstance(count, int) else "" for count in counts),
                f"{seconds / 60:.1f}" if isinstance(seconds, int | float) else "",
                *("" if name not in known else show_score(known[name]) for name in _SHOWN),
            )
        )
    return lines


def _describe_task(models: Sequence[Mapping[str, Any]]) -> str:
    result = models[0]["mlm"]
    count = next(score["num_samples"] for score in result["scores"] if score["name"] == "loss")
    task = f"{count:,} masked tokens of {result['data']['name']}, rows of "
    task += f"{result['settings']['max_seq_length']}, pinned masks at 15 %"
    if _share_masks(models):
        return task
    why = "tokenizers" if len({one["tokenizer_fingerprint"] for one in models}) > 1 else "rows"
    return f"{task}; {why} differ, so only bits per character can be compared, and not paired"
