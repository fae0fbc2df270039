"""Comparison of models on the same masks: differences of scores, with confidence intervals."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from maskwright.config import read_yaml
from maskwright.console import tell
from maskwright.data.config import DataConfig
from maskwright.errors import InputError, ShardError, suggest
from maskwright.evaluation.data import describe_partial_text
from maskwright.evaluation.difference_tables import tabulate_comparison
from maskwright.evaluation.intervals import ScoreFormula, SumTable, compare_tables
from maskwright.evaluation.run import (
    Evaluation,
    check_row_length,
    choose_rows,
    find_training_data,
    list_sources,
    reporting_progress,
)
from maskwright.evaluation.seeds import SeedDifference, compare_groups, decide_differences
from maskwright.evaluation.suite_mlm import (
    BITS_PER_CHARACTER,
    FORMULAS,
    MASK_ONLY_FORMULAS,
    MLM,
    WORD_FORMULAS,
    MaskedTables,
    describe_tables,
    measure_request,
    pin_text,
)
from maskwright.files import JsonObject, check_new_folder, write_json, write_text
from maskwright.formatting import name_group, shorten_names
from maskwright.inference.text_model import TextModel
from maskwright.logs import Record, read_training
from maskwright.model_folder.folder import describe_folder
from maskwright.provenance import Environment, describe_environment
from maskwright.report.charts import Curve, check_matplotlib, plot_curves
from maskwright.report.tables import render_tables
from maskwright.runs.evaluation_file import (
    FORMAT,
    ModelFacts,
    ResultRecord,
    Score,
    ScoreRecord,
    SuiteResult,
    record_result,
    to_plain,
)
from maskwright.runs.find_model import find_masked_model
from maskwright.runs.prepared_folders import check_made_for, locate
from maskwright.runs.run_directory import CONFIG_NAME, METRICS_NAME, is_prepared
from maskwright.shards.remote import show_path
from maskwright.tokenizer.tokenizer import Tokenizer

_COMPARISON_NAME, _PAGE_NAME = "comparison.json", "comparison.html"
# The scores that models of one tokenizer are compared by, the default of --primary first.
_COMPARED = tuple(one.name for one in (*FORMULAS, *MASK_ONLY_FORMULAS, *WORD_FORMULAS))


class ComparedModel(ModelFacts):
    """A model of a `Comparison`: the last validation of its run, and the suite ``mlm``."""

    last_validation: Record
    mlm: ResultRecord


class DifferenceRecord(ScoreRecord):
    """A difference of a score, with the fields of `maskwright.evaluation.seeds.Verdict`."""

    is_primary: bool
    p_value: float | None
    p_adjusted: float | None
    differs: bool


class ModelDifference(TypedDict):
    """The scores of a model minus those of the first one, the primary score first.

    `is_paired` is False if the masks differ; then only bits per character are compared.
    """

    name: str
    is_paired: bool
    scores: list[DifferenceRecord]


class GroupDifference(TypedDict):
    """The scores of the runs minus those of the runs that they are compared against.

    `is_paired` is True if each seed is in both groups once; then runs of one seed are subtracted.
    Each score has its ``name`` and the fields of `maskwright.evaluation.seeds.SeedDifference` and
    `maskwright.evaluation.seeds.Verdict`; the primary score is the first.
    """

    num_runs: tuple[int, int]
    is_paired: bool
    scores: list[JsonObject]


class Comparison(TypedDict):
    """The content of ``comparison.json``; with groups there are no differences from the first.

    `primary` is the score that the comparison is about.
    """

    format: int
    environment: Environment
    date: str
    primary: str
    models: list[ComparedModel]
    differences_from_first: list[ModelDifference]
    difference_of_groups: NotRequired[GroupDifference]


@dataclass(frozen=True)
class _Scored:
    """A scored model, and of a run its seed and the validations in its metrics.jsonl."""

    facts: ModelFacts
    seed: int | None
    validations: list[Record]
    result: SuiteResult
    tables: MaskedTables

    def describe(self) -> ComparedModel:
        last = self.validations[-1] if self.validations else {}
        shown = {name: value for name, value in last.items() if name != "samples"}
        result = record_result(self.result)
        return {**self.facts, "last_validation": to_plain(shown), "mlm": result}


def compare(
    runs: Sequence[str | Path],
    *,
    against: Sequence[str | Path] = (),
    primary: str | None = None,
    data: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    fast: bool = False,
    seq_length: int | None = None,
    device: str | None = None,
) -> Comparison:
    """Score models on the same masks, one in memory at a time::

        found = compare(["runs/A", "runs/B"])
        [difference] = found["differences_from_first"]
        compare(["runs/A-0", "runs/A-1"], against=["runs/B-0", "runs/B-1"])["difference_of_groups"]

    Args:
        runs: run directories, model folders, or ``hf:NAME``: two or more.
        against: another group of them: the means of the groups are compared, by seed if possible.
        primary: the score that the comparison is about; default: the loss, or bits per character
            if the masks differ. All others are exploratory: their p-values are adjusted (Holm).
        data: a prepared folder or its URL, or text files; default: the data of the first run.
        out: a new folder for ``comparison.json``, a page and plots.
        fast: score an eighth of the text.
        seq_length: tokens per row; default: the shortest row length of the runs.
        device: the device, such as ``cpu`` or ``cuda``; default: a GPU if there is one.

    Returns:
        ``{"models": [{"name", "mlm", "last_validation", …}, …], "differences_from_first":
        [{"name", "is_paired", "scores": [{"name", "value", "low", "high", "p_adjusted", "differs",
        …}, …]}, …], …}``, the primary score first; with `against` ``"difference_of_groups"``:
        ``{"num_runs", "is_paired", "scores": [{"name", "mean", "mean_against", "deviation", …}]}``.

    Raises:
        MaskwrightError: an input is wrong; the message is one line.
    """
    _check_groups(runs, against, primary)
    check_row_length(seq_length)
    folder = None if out is None else _make_folder(Path(out))
    names = [os.fspath(run) for run in (*runs, *against)]
    scored = _score_all(names, list_sources(data), seq_length, device, is_fast=fast)
    primary = _choose_primary(scored, primary)
    comparison: Comparison = {
        "format": FORMAT,
        "environment": describe_environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "primary": primary,
        "models": [one.describe() for one in scored],
        "differences_from_first": [] if against else _subtract_first(scored, primary),
    }
    if against:
        comparison["difference_of_groups"] = _subtract_groups(scored, len(runs), primary)
    if folder is not None:
        write_json(folder / _COMPARISON_NAME, comparison)
        page = render_tables("Comparison", tabulate_comparison(comparison))
        write_text(folder / _PAGE_NAME, page)
        _plot(scored, folder, len(runs) if against else 0)
    return comparison


def _make_folder(folder: Path) -> Path:
    """Make a new folder for plots; raise if it is not new, or the extra is not installed."""
    check_matplotlib()
    check_new_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _check_groups(
    runs: Sequence[str | Path], against: Sequence[str | Path], primary: str | None
) -> None:
    """Raise InputError for groups of one run, or a primary score that is none."""
    if against and min(len(runs), len(against)) < 2:
        raise InputError("--against needs two runs or more in each group. Add runs of other seeds.")
    if primary is not None and primary not in _COMPARED:
        raise suggest("score", primary, list(_COMPARED), "--primary NAME")


def _choose_primary(scored: Sequence[_Scored], primary: str | None) -> str:
    """Return the score that is compared first; raise InputError if it is not comparable."""
    is_paired = len({one.tables.masks for one in scored}) == 1
    comparable = _COMPARED if is_paired else (BITS_PER_CHARACTER.name,)
    if primary is not None and primary not in comparable:
        raise InputError(
            f"--primary = {primary} cannot be compared, because the masks differ. Give "
            f"--primary {BITS_PER_CHARACTER.name}, or leave it out."
        )
    primary = primary or comparable[0]
    for one in scored:
        if primary not in {score.name for score in one.result.scores}:
            raise InputError(f"{one.facts['name']} has no score {primary} on this text")
    return primary


def _score_all(
    arguments: Sequence[str],
    sources: Sequence[str],
    max_seq_length: int | None,
    device: str | None,
    *,
    is_fast: bool,
) -> list[_Scored]:
    """Score each model on rows that fit all of them.

    Raise InputError if there are fewer than two models, one is given twice, or a tokenizer differs
    from that of the first run's data.
    """
    if len(arguments) < 2:
        raise InputError("compare needs two runs or more. Add one")
    if len(set(arguments)) < len(arguments):
        raise InputError("the same run is named twice. Remove one")
    folders = [find_masked_model(argument, tell) for argument in arguments]
    described = [describe_folder(folder) for folder in folders]
    positions = [one.config.max_position_embeddings for one in described]
    usual = [choose_rows(*pair) for pair in zip(arguments, positions, strict=True)]
    rows = DataConfig(
        max_seq_length=max_seq_length or min(one.max_seq_length for one in usual),
        packed=all(one.packed for one in usual),
    )
    for argument, longest in zip(arguments, positions, strict=True):
        if rows.max_seq_length > longest:
            raise InputError(
                f"--seq-length = {rows.max_seq_length} is more than the {longest} positions of "
                f"{argument}. Give at most {longest}."
            )
    sources = sources or [*map(str, find_training_data(arguments[0]))]
    _check_sources(arguments, [one.tokenizer for one in described], sources)
    scored: list[_Scored] = []
    for number, (argument, folder) in enumerate(zip(arguments, folders, strict=True), start=1):
        task = f"scoring {argument}, {number} of {len(folders)}"
        opened: TextModel[Any] = TextModel(folder, device)
        scored.append(_score(Evaluation(argument, folder, opened), sources, rows, is_fast, task))
        del opened  # free it before the next one is loaded
    if line := describe_partial_text(scored[0].result.data):
        tell(line)
    return scored


def _check_sources(
    arguments: Sequence[str], tokenizers: Sequence[Tokenizer], sources: Sequence[str]
) -> None:
    """Raise an InputError unless every model can be scored on the text."""
    if "-" in sources:
        raise InputError("--data - can be read only once, but there are several models. Give files")
    for folder in filter(is_prepared, map(locate, sources)):
        for argument, tokenizer in zip(arguments, tokenizers, strict=True):
            try:
                check_made_for(tokenizer, folder)
            except ShardError:
                raise InputError(
                    f"{argument} has another tokenizer than {show_path(folder)}, and scores on "
                    "different texts cannot be compared. Give text files with --data to score all "
                    "models on."
                ) from None


def _score(
    evaluation: Evaluation, sources: Sequence[str], rows: DataConfig, is_fast: bool, task: str
) -> _Scored:
    request = evaluation.make_request(
        [MLM], sources, rows.max_seq_length, is_fast=is_fast, packed=rows.packed
    )
    with reporting_progress(evaluation.model, task):
        tables = measure_request(request)
    records: list[Record] = []
    seed: int | None = None
    if evaluation.run is not None:
        given = read_yaml(evaluation.run / CONFIG_NAME).get("seed")
        seed = given if isinstance(given, int) else None
        read = read_training(evaluation.run / METRICS_NAME)
        records = [record for record in read if record["split"] == "valid"]
    result = describe_tables(tables, pin_text(request), request.need_text().data)
    return _Scored(evaluation.find_facts(), seed, records, result, tables)


def _subtract_first(scored: Sequence[_Scored], primary: str) -> list[ModelDifference]:
    """Return all models but the first minus the first one."""
    found = [_subtract(one, scored[0]) for one in scored[1:]]
    verdicts = decide_differences(
        [{score.name: p for score, p in pairs} for pairs in found], primary
    )
    return [
        {
            "name": model.facts["name"],
            "is_paired": model.tables.masks == scored[0].tables.masks,
            "scores": to_plain([{**named[name], **asdict(one)} for name, one in own.items()]),
        }
        for model, pairs, own in zip(scored[1:], found, verdicts, strict=True)
        for named in [{score.name: asdict(score) for score, _ in pairs}]
    ]


def _subtract(other: _Scored, first: _Scored) -> list[tuple[Score, float | None]]:
    """Return the difference of each score that can be compared, and its p-value."""
    ours, theirs = other.tables, first.tables
    is_paired = ours.masks == theirs.masks
    formulas = FORMULAS if is_paired else (BITS_PER_CHARACTER,)
    parts: list[tuple[Sequence[ScoreFormula], SumTable, SumTable]]
    parts = [(formulas, ours.tokens, theirs.tokens)]
    if is_paired:
        parts.append((MASK_ONLY_FORMULAS, ours.mask_only, theirs.mask_only))
        parts.append((WORD_FORMULAS, ours.words, theirs.words))
    return [
        compare_tables(formula, mine, others, is_paired)
        for formulas, mine, others in parts
        for formula in formulas
        if min(mine.totals[formula.count], others.totals[formula.count]) > 0
    ]


def _subtract_groups(scored: Sequence[_Scored], count: int, primary: str) -> GroupDifference:
    """Return the first `count` minus the others: the differences of the scores that all have."""
    ours, theirs = scored[:count], scored[count:]
    seeds = [{one.seed for one in group} - {None} for group in (ours, theirs)]
    is_paired = seeds[0] == seeds[1] and len(seeds[0]) == len(ours) == len(theirs)
    if is_paired:
        ours, theirs = (sorted(group, key=lambda one: one.seed or 0) for group in (ours, theirs))
    names: Sequence[str] = _COMPARED
    if len({one.tables.masks for one in (*ours, *theirs)}) > 1:
        names = (BITS_PER_CHARACTER.name,)
    values = [
        [{score.name: score.value for score in one.result.scores} for one in group]
        for group in (ours, theirs)
    ]
    found: dict[str, SeedDifference] = {}
    for name in names:
        if all(name in scores for group in values for scores in group):
            mine, others = (np.array([scores[name] for scores in group]) for group in values)
            found[name] = compare_groups(mine, others, is_paired)
    [verdicts] = decide_differences([{name: one.p_value for name, one in found.items()}], primary)
    scores = [
        {"name": name, **asdict(found[name]), **asdict(verdict)}
        for name, verdict in verdicts.items()
    ]
    num_runs = len(ours), len(theirs)
    return {"num_runs": num_runs, "is_paired": is_paired, "scores": to_plain(scores)}


def _plot(scored: Sequence[_Scored], folder: Path, num_in_first: int) -> None:
    """Draw the validations of each run, or if `num_in_first` is not 0, of each of two groups."""
    names = shorten_names([one.facts["name"] for one in scored])
    records = [one.validations for one in scored]
    curves = [Curve(name, own) for name, own in zip(names, records, strict=True)]
    note = "Validation scores during training, on pinned masks at 15 %."
    if num_in_first:
        cut = slice(None, num_in_first), slice(num_in_first, None)
        curves = [Curve(name_group(names[part]), [], records[part]) for part in cut]
        note += " Line: mean of the seeds. Band: from the smallest to the largest."
    if not any(records):
        return
    tokenizers = {one.facts["tokenizer_fingerprint"] for one in scored if one.validations}
    if len(tokenizers) > 1:
        note += " The tokenizers differ, so losses and accuracies of tokens cannot be compared."
    plot_curves([curve for curve in curves if curve.records or any(curve.others)], folder, note)
