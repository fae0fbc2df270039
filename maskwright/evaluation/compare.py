"""Models side by side: the same masks, the differences, and how sure they are."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from maskwright.data.config import DataConfig
from maskwright.errors import InputError, ShardError
from maskwright.evaluation.masked_detail import MaskedTables
from maskwright.evaluation.masked_suite import (
    BITS_PER_CHARACTER,
    FIGURES,
    MASK_ONLY_FIGURES,
    WORD_FIGURES,
    describe_tables,
)
from maskwright.evaluation.run import (
    FORMAT,
    Evaluation,
    choose_rows,
    find_training_data,
    to_plain,
)
from maskwright.evaluation.scores import Score, SuiteResult
from maskwright.evaluation.suites import measure_tables, pin_text, telling
from maskwright.evaluation.sums import Figure, SumTable, compare_tables
from maskwright.logs import Record, read_training
from maskwright.model_folder.folder import describe_folder
from maskwright.preparation.locate import locate
from maskwright.provenance import describe_environment
from maskwright.runs.find_data import check_made_for, is_prepared
from maskwright.runs.find_model import find_masked_model
from maskwright.runs.run_directory import METRICS_NAME
from maskwright.shards.folder import name_path
from maskwright.tokenizer.tokenizer import Tokenizer

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

    def score(self, name: str) -> Score | None:
        """A score; None where there was nothing to divide by."""
        return next((score for score in self.result.scores if score.name == name), None)


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
    report: Callable[[str], None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Compared]:
    """Scores each model, one in memory at a time, on rows that suit all of them.

    Args:
        arguments: runs, model folders, or names on the hub.
        sources: a prepared folder or text files; without any, the data of the first run.
        report: told in a line that a generator is scored.
        progress: told which model is scored.

    Raises:
        InputError: fewer than two models, two of one name, or one that the data of the first run
            cannot be given to, for its tokenizer is another.
        MaskwrightError: as from an evaluation of each.
    """
    if len(arguments) < 2:
        raise InputError("compare needs at least two runs")
    if len(set(arguments)) < len(arguments):
        raise InputError("the same run is named twice")
    folders = [find_masked_model(argument, report) for argument in arguments]
    described = [describe_folder(folder) for folder in folders]
    usual = [
        choose_rows(argument, one.config.max_position_embeddings)
        for argument, one in zip(arguments, described, strict=True)
    ]
    rows = DataConfig(
        max_seq_length=max_seq_length or min(one.max_seq_length for one in usual),
        packed=all(one.packed for one in usual),
    )
    _check_rows(arguments, [one.config.max_position_embeddings for one in described], rows)
    sources = sources or _find_shared_data(arguments)
    _check_sources(arguments, [one.tokenizer for one in described], sources)
    compared: list[Compared] = []
    for number, (argument, folder) in enumerate(zip(arguments, folders, strict=True), start=1):
        what = f"scoring {argument}, {number} of {len(folders)}"
        # Named nowhere here, an evaluation is gone with its model before the next one is read.
        compared.append(
            _score(Evaluation(argument, folder, device), sources, rows, is_fast, what, progress)
        )
    return compared


def _find_shared_data(arguments: Sequence[str]) -> list[str]:
    """The data of the first run, if it has any."""
    return [*map(str, find_training_data(arguments[0]))]


def _check_rows(arguments: Sequence[str], positions: Sequence[int], rows: DataConfig) -> None:
    for argument, longest in zip(arguments, positions, strict=True):
        if rows.max_seq_length > longest:
            raise InputError(
                f"--seq-length = {rows.max_seq_length} is more than the {longest} positions of "
                f"{argument}. Give at most {longest}."
            )


def _check_sources(
    arguments: Sequence[str], tokenizers: Sequence[Tokenizer], sources: Sequence[str]
) -> None:
    """That the text can be given to every model."""
    if "-" in sources:
        raise InputError("--data - can be read only once, and there are several models: name files")
    for folder in filter(is_prepared, map(locate, sources)):
        for argument, tokenizer in zip(arguments, tokenizers, strict=True):
            try:
                check_made_for(tokenizer, folder)
            except ShardError:
                raise InputError(
                    f"{argument} has another tokenizer than {name_path(folder)}, and different "
                    "texts cannot be compared. Give --data: text files, on which all are scored."
                ) from None


def _score(
    evaluation: Evaluation,
    sources: Sequence[str],
    rows: DataConfig,
    is_fast: bool,
    what: str,
    progress: Callable[[str], None],
) -> Compared:
    request = evaluation.make_request(
        ("mlm",), sources, rows.max_seq_length, is_fast=is_fast, packed=rows.packed
    )
    with telling(evaluation.model, what, progress):
        tables = measure_tables(request)
    records: list[Record] = []
    if evaluation.run is not None:
        read = read_training(evaluation.run / METRICS_NAME)
        records = [record for record in read if record["split"] == "valid"]
    result = describe_tables(tables, pin_text(request), request.need_text().data)
    return Compared(evaluation.model_facts, records, result, tables)


def find_differences(compared: Sequence[Compared]) -> list[Difference]:
    """Every other model against the first one."""
    first, *others = compared
    differences: list[Difference] = []
    for other in others:
        is_paired = other.tables.masks == first.tables.masks
        figures = FIGURES if is_paired else (BITS_PER_CHARACTER,)
        scores = _compare(figures, other.tables.tokens, first.tables.tokens, is_paired)
        if is_paired:
            scores += _compare_further(other.tables, first.tables)
        differences.append(Difference(other.name, is_paired, tuple(scores)))
    return differences


def _compare_further(ours: MaskedTables, theirs: MaskedTables) -> list[Score]:
    return [
        *_compare(MASK_ONLY_FIGURES, ours.mask_only, theirs.mask_only, is_paired=True),
        *_compare(WORD_FIGURES, ours.words, theirs.words, is_paired=True),
    ]


def _compare(
    figures: Sequence[Figure], ours: SumTable, theirs: SumTable, is_paired: bool
) -> list[Score]:
    """The differences of the scores that both models have."""
    return [
        compare_tables(figure, ours, theirs, is_paired)
        for figure in figures
        if min(ours.totals[figure.count], theirs.totals[figure.count]) > 0
    ]


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


def _share_masks(compared: Sequence[Compared]) -> bool:
    return len({one.tables.masks for one in compared}) == 1


def tabulate(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Titles, and a line for each model."""
    titles = ("model", "parameters", "steps", "tokens", "minutes", *_SHOWN)
    comparable = _SHOWN if _share_masks(compared) else (BITS_PER_CHARACTER.name,)
    lines: list[tuple[str, ...]] = [titles]
    for one in compared:
        seconds = one.last.get("seconds")
        lines.append(
            (
                one.name,
                f"{one.facts['num_parameters']:,}",
                *(_show_count(one.last.get(name)) for name in ("step", "tokens")),
                f"{seconds / 60:.1f}" if isinstance(seconds, int | float) else "",
                *(_show_score(one.score(name)) if name in comparable else "" for name in _SHOWN),
            )
        )
    return lines


def _show_score(score: Score | None) -> str:
    return "" if score is None else f"{score.value:.4f}"


def _show_count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def describe_task(compared: Sequence[Compared]) -> str:
    """In one line: on what the models were scored, and what may be compared."""
    first = compared[0]
    settings, count = first.result.settings, first.tables.tokens.totals["count"]
    what = f"{round(float(count)):,} hidden tokens of {first.result.data['name']}, rows of "
    what += f"{settings['max_seq_length']}, pinned masks at 15 %"
    if _share_masks(compared):
        return what
    tokenizers = {one.facts["tokenizer_fingerprint"] for one in compared}
    why = "tokenizers differ" if len(tokenizers) > 1 else "rows differ"
    return f"{what}; {why}, so only bits per character can be compared, and not paired"
