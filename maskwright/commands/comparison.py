"""Models side by side: the same masks, the differences, and how sure they are."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from maskwright.artifact.folder import describe_folder
from maskwright.commands.evaluation import FORMAT, Evaluation, choose_row_length, to_plain
from maskwright.commands.model_folder import find_model_folder
from maskwright.commands.run_folder import METRICS_NAME
from maskwright.commands.suites import pin_text
from maskwright.errors import InputError
from maskwright.evaluation.masked_detail import MaskedTables
from maskwright.evaluation.masked_suite import (
    BITS_PER_CHARACTER,
    FIGURES,
    WORD_FIGURES,
    describe_tables,
)
from maskwright.evaluation.scores import Score, SuiteResult
from maskwright.evaluation.sums import compare_tables
from maskwright.logs import Record, read_metrics
from maskwright.provenance import describe_environment

_SHOWN = ("loss", "masked_accuracy", "masked_accuracy_top5", "bits_per_character")


@dataclass(frozen=True)
class Compared:
    """One model of a comparison.

    Attributes:
        facts: name, hash, size and tokenizer.
        validations: records of its metrics.jsonl; none if it is no run.
        result: the suite ``mlm``.
        tables: the sums behind it.
    """

    facts: dict[str, Any]
    validations: list[Record]
    result: SuiteResult
    tables: MaskedTables

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def last(self) -> Record:
        """The last validation; empty if it is no run."""
        return self.validations[-1] if self.validations else {}

    def score(self, name: str) -> Score:
        """One of the scores that every model has."""
        return next(score for score in self.result.scores if score.name == name)


@dataclass(frozen=True)
class Difference:
    """What one model scores more than the first one.

    Attributes:
        is_paired: on the same masks; otherwise only bits per character are compared.
    """

    name: str
    is_paired: bool
    scores: tuple[Score, ...]


def compare_models(
    arguments: Sequence[str],
    sources: Sequence[str] = (),
    max_seq_length: int | None = None,
    device: str | None = None,
    *,
    is_fast: bool = False,
) -> list[Compared]:
    """Scores each model, one in memory at a time, on rows that suit all of them.

    Args:
        arguments: runs, model folders, or names on the hub.
        sources: a prepared folder or text files; without any, the data of the first run for all
            models of its tokenizer, and their own for the others.

    Raises:
        InputError: fewer than two models, or two of one name.
        MaskwrightError: as from an evaluation of each.
    """
    if len(arguments) < 2:
        raise InputError("compare needs at least two runs")
    if len(set(arguments)) < len(arguments):
        raise InputError("the same run is named twice")
    folders = [find_model_folder(argument) for argument in arguments]
    if max_seq_length is None:
        configs = [describe_folder(folder).config for folder in folders]
        max_seq_length = min(
            choose_row_length(argument, config.max_position_embeddings)
            for argument, config in zip(arguments, configs, strict=True)
        )
    first: Evaluation | None = None
    compared: list[Compared] = []
    for argument, folder in zip(arguments, folders, strict=True):
        evaluation = Evaluation(argument, folder, device)
        chosen = sources
        if not sources and first is not None and _share_tokenizer(first, evaluation):
            chosen = [str(first.training_data)] if first.training_data else []
        first = first or evaluation
        compared.append(_score(evaluation, chosen, max_seq_length, is_fast))
    return compared


def _share_tokenizer(one: Evaluation, other: Evaluation) -> bool:
    return one.model.tokenizer.fingerprint == other.model.tokenizer.fingerprint


def _score(
    evaluation: Evaluation, sources: Sequence[str], max_seq_length: int, is_fast: bool
) -> Compared:
    request = evaluation.make_request(("mlm",), sources, max_seq_length, is_fast=is_fast)
    tables = evaluation.measure(request)
    records: list[Record] = []
    if evaluation.run is not None:
        read = read_metrics(evaluation.run / METRICS_NAME)
        records = [record for record in read if record.get("split") == "valid"]
    result = describe_tables(tables, pin_text(request), request.need_text().data)
    return Compared(evaluation.model_facts, records, result, tables)


def find_differences(compared: Sequence[Compared]) -> list[Difference]:
    """Every other model against the first one."""
    first, *others = compared
    differences: list[Difference] = []
    for other in others:
        is_paired = other.tables.masks == first.tables.masks
        figures = FIGURES if is_paired else (BITS_PER_CHARACTER,)
        scores = [
            compare_tables(figure, other.tables.tokens, first.tables.tokens, is_paired)
            for figure in figures
        ]
        if is_paired:
            scores += [
                compare_tables(figure, other.tables.words, first.tables.words, is_paired)
                for figure in WORD_FIGURES
                if first.tables.words.totals[figure.count] > 0
            ]
        differences.append(Difference(other.name, is_paired, tuple(scores)))
    return differences


def describe_comparison(
    compared: Sequence[Compared], differences: Sequence[Difference]
) -> dict[str, Any]:
    """All of it as plain values, ready for JSON."""
    return to_plain(
        {
            "format": FORMAT,
            "environment": describe_environment(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "models": [
                {**one.facts, "last_validation": _without_samples(one), "mlm": asdict(one.result)}
                for one in compared
            ],
            "differences_from_first": [asdict(difference) for difference in differences],
        }
    )


def _without_samples(one: Compared) -> Record:
    return {name: value for name, value in one.last.items() if name != "samples"}


def tabulate(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Titles, and a line for each model."""
    titles = ("model", "parameters", "steps", "tokens", "minutes", *_SHOWN)
    lines: list[tuple[str, ...]] = [titles]
    for one in compared:
        seconds = one.last.get("seconds")
        lines.append(
            (
                one.name,
                f"{one.facts['num_parameters']:,}",
                *(_show_count(one.last.get(name)) for name in ("step", "tokens")),
                f"{seconds / 60:.1f}" if isinstance(seconds, int | float) else "",
                *(f"{one.score(name).value:.4f}" for name in _SHOWN),
            )
        )
    return lines


def _show_count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def describe_task(compared: Sequence[Compared]) -> str:
    """In one line: on what the models were scored, and what may be compared."""
    first = compared[0]
    settings, count = first.result.settings, first.score("loss").num_samples
    what = f"{count:,} hidden tokens of {first.result.data['name']}, rows of "
    what += f"{settings['max_seq_length']}, pinned masks at 15 %"
    if all(one.tables.masks == first.tables.masks for one in compared):
        return what
    tokenizers = {one.facts["tokenizer_fingerprint"] for one in compared}
    why = "tokenizers differ" if len(tokenizers) > 1 else "texts or rows differ"
    return f"{what}; {why}, so only bits per character can be compared, and not paired"
