"""The report of one run, or of several side by side: one HTML file without external resources."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from maskwright.errors import InputError, show_value
from maskwright.files import as_mapping, write_text
from maskwright.formatting import show_score
from maskwright.logs import describe_samples, of_sources, split_sample
from maskwright.objectives.scores import ACCURACY, LOSS, ScoreLine
from maskwright.report.charts import (
    Curve,
    check_matplotlib,
    draw_learning,
    draw_lengths,
    draw_scores,
    draw_training,
)
from maskwright.report.facts import RunFacts, describe_extent
from maskwright.report.pages import fill_template, flatten
from maskwright.runs.evaluation_file import SuiteResult, choose_result
from maskwright.shards.manifest import Manifest

_BY_FREQUENCY = re.compile(r"frequency_1e\d{1,2}/.*")
# The suite of a chart, the scores that are its bars, the title, and the value of a random choice.
_SCORE_CHARTS = (
    (
        *("mlm", re.compile(rf"frequency_1e(\d{{1,2}})/{ACCURACY.name}")),
        *("Accuracy on [MASK] by token frequency in training", None),
    ),
    (
        *("blimp", re.compile(r"blimp/((?!mean_over)[^/]+)")),
        *("BLiMP by phenomenon (chance: 0.5)", 0.5),
    ),
)
_MAX_BARS = 100
_MAP = (
    "Words that occur in the same contexts get similar embeddings. The map shows the two "
    "directions in which these words differ most: neighbors on it may be far apart in the others"
)
_SIZES = (
    ("preset", "{}"),
    ("num_hidden_layers", "{} layers"),
    ("hidden_size", "width {}"),
    ("num_attention_heads", "{} heads"),
    ("intermediate_size", "MLP width {}"),
)
# A line of `maskwright.inference.samples` with one masked word.
_SAMPLE = re.compile(
    r"(?P<sign>[✓✗]) (?P<text>.*)  →  (?P<guesses>.*)  \(was: (?P<word>.*)\)", re.DOTALL
)
_MASK = re.compile(r"\[MASK\]|<mask>")
Row = tuple[str, str]  # of a table: name and value


class SampleRow(NamedTuple):
    """A text with a masked word, and the predictions ("right" or "wrong", words) at each time."""

    before: str
    word: str
    after: str
    guesses: list[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A section of the page; the template shows the parts that are not empty.

    Attributes:
        scores, details: name, value, interval and baseline of scores; details are collapsed.
        note: a caption of the samples.
        times, rows: samples as a table with a column for each time.
        samples: other samples, as the time and the lines, each as parts with their CSS class.
    """

    title: str
    svg: str | None = None
    table: Sequence[Row] = ()
    scores: Sequence[tuple[str, str, str, str]] = ()
    details: Sequence[tuple[str, str, str, str]] = ()
    note: str = ""
    times: Sequence[str] = ()
    rows: Sequence[SampleRow] = ()
    samples: Sequence[tuple[str, list[list[tuple[str, str]]]]] = ()


def write_report(runs: Sequence[RunFacts], out: Path) -> None:
    """Write the page to a file; raise as `render_page`."""
    write_text(out, render_page(runs))


def render_page(runs: Sequence[RunFacts]) -> str:
    """Return the page as HTML: all data of one run, or the curves and scores of several.

    Raise InputError if the extra ``plots`` is not installed, or no run has a line of metrics yet.
    """
    check_matplotlib()
    if not any(run.records for run in runs):
        raise InputError(
            f"{runs[0].name} has no line in metrics.jsonl yet. Report it after the first steps."
        )
    return fill_template(
        "report.html.j2",
        title=" · ".join(run.name for run in runs),
        runs=[_summarize(run) for run in runs],
        learning=draw_learning([Curve(run.name, run.validations) for run in runs]),
        notes=list(_list_notes(runs)),
        differences=list(_list_differences(runs)),
        sections=[*_list_sections(runs[0])] if len(runs) == 1 else [_draw_steps(runs)],
    )


def _list_notes(runs: Sequence[RunFacts]) -> Iterator[str]:
    if any(run.last.get("final") for run in runs):
        yield (
            "The last point of a finished run is measured on more held-out text than the others, "
            "so it may deviate slightly from the curve."
        )
    # From the provenance, because the prepared data may be gone.
    corpora = [as_mapping(run.provenance.get("corpus")) for run in runs]
    texts = {str(corpus.get("fingerprint")) for corpus in corpora if corpus}
    if len(texts) > 1:
        yield (
            "The runs were trained and scored on different text or with different tokenizers, so "
            "their losses and accuracies are not comparable. Use maskwright compare --data."
        )


def _list_differences(runs: Sequence[RunFacts]) -> Iterator[tuple[str, list[str]]]:
    configs = [dict(flatten(run.config)) for run in runs]
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name, "") for config in configs]
        if len(set(values)) > 1:
            yield name, values


def _summarize(run: RunFacts) -> dict[str, object]:
    """Return the column of a run in the first table."""
    last, provenance = run.last, run.provenance
    facts = {
        "model": _describe_model(run),
        "recipe": show_value(provenance.get("recipe") or "not recorded"),
        "validation loss": _describe_score(last, LOSS, run.first),
        ACCURACY.title: _describe_score(last, ACCURACY, run.first),
        "steps": f"{run.find_largest('step'):,}",
        "tokens": f"{run.find_largest('tokens'):,}",
        "minutes": f"{run.find_largest('seconds') / 60:,.1f}",
        "hardware": f"{show_value(provenance.get('cpu_count', '?'))} cores, "
        f"{show_value(provenance.get('cpu'))}",
        "begun": show_value(provenance.get("started", "?")),
    }
    state = "finished" if run.is_finished else "not finished"
    return {"name": run.name, "state": state, "facts": facts}


def _describe_model(run: RunFacts) -> str:
    sizes, count = as_mapping(run.config.get("model")), run.provenance.get("num_parameters")
    parts = [f"{count:,} parameters"] if isinstance(count, int) else []
    parts += [text.format(show_value(sizes[name])) for name, text in _SIZES if sizes.get(name)]
    return ", ".join(parts) or "not recorded"


def _show_number(value: float | None) -> str:
    """Return a number with three decimals, or three digits if it is large; None: `UNDEFINED`."""
    return f"{value:.3g}" if value is not None and abs(value) >= 1e6 else show_score(value, 3)


def _describe_score(
    record: Mapping[str, Any], line: ScoreLine, first: Mapping[str, Any], of_source: str = ""
) -> str:
    """Return a score with that of the model that the run began with, and the baseline."""
    name = line.name + of_source
    if name not in record:
        return "not measured yet"
    beside = [
        f"{what}: {_show_number(other)}"
        for what, other in (
            ("before", first.get(name)),
            (line.baseline_name, record.get(line.baseline + of_source)),
        )
        if isinstance(other, int | float)
    ]
    return f"{_show_number(record[name])}" + (f" ({', '.join(beside)})" if beside else "")


def _list_sections(run: RunFacts) -> Iterator[Section]:
    if picked := run.pick_samples():
        yield _describe_samples(picked, describe_samples(run.last))
    for result in run.evaluation:
        rows = list(_list_scores(result))
        name = show_value(result.data.get("name", "a text"))
        yield Section(
            f"Scores of {result.suite} on {name}{describe_extent(result)}",
            scores=[row for row in rows if "/" not in row[0]],
            details=[row for row in rows if "/" in row[0]],
        )
    yield _draw_steps([run])
    if sources := list(_list_sources(run)):
        yield Section("Scores by source", table=sources)
    yield Section("Time", table=_list_shares(run))
    for suite, pattern, name, chance in _SCORE_CHARTS:
        result = choose_result(run.evaluation, suite)
        bars = [
            (_name_bar(named[1]), (score.value, score.low, score.high))
            for score in (result.scores if result else ())
            if (named := pattern.fullmatch(score.name)) and 0 <= score.value <= 1
        ]
        if result and bars:
            title = name + describe_extent(result)
            yield Section(title, draw_scores(dict(bars[:_MAX_BARS]), title, chance))
    if run.words is not None:
        yield Section("Map of frequent words", run.words.draw(), note=_MAP)
        yield Section("Nearest words by their embeddings", table=list(run.words.list_nearest()))
    if run.manifest is not None:
        chart = draw_lengths(run.document_lengths) if len(run.document_lengths) else None
        yield Section("Text and tokenizer", chart, _describe_text(run.manifest))
    yield Section("Configuration", table=list(_list_settings(run)))
    yield Section("Provenance", table=list(flatten(run.provenance)))


def _list_settings(run: RunFacts) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each setting, with the origin of one that is no default."""
    origins = {
        name: show_value(origin)
        for origin, names in as_mapping(run.provenance.get("origins")).items()
        for name in (cast(list[object], names) if isinstance(names, list) else ())
        if isinstance(name, str)
    }
    for name, value in flatten(run.config):
        yield name, f"{value} ({origins[name]})" if name in origins else value


def _draw_steps(runs: Sequence[RunFacts]) -> Section:
    curves = [Curve(run.name, run.training) for run in runs]
    return Section("Training curves", draw_training(curves))


def _describe_samples(picked: Sequence[tuple[str, Sequence[str]]], caption: str) -> Section:
    title = "Predictions for masked words"
    if rows := tabulate_samples([lines for _, lines in picked]):
        return Section(title, note=caption, times=[time for time, _ in picked], rows=rows)
    samples = [(time, [list(split_sample(line)) for line in lines]) for time, lines in picked]
    return Section(title, note=caption, samples=samples)


def tabulate_samples(samples: Sequence[Sequence[str]]) -> list[SampleRow] | None:
    """Return a row for each text, with a column for the sample lines of each time.

    None if a line masks anything but a single word.
    """
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for column, lines in enumerate(samples):
        for line in lines:
            sample = _SAMPLE.fullmatch(line)
            if sample is None:
                return None
            sign, text, guesses, word = sample.groups()
            row = rows.setdefault((text, word), [("", "")] * len(samples))
            row[column] = ("right" if sign == "✓" else "wrong", guesses)
    found: list[SampleRow] = []
    for (text, word), row in rows.items():
        # Of an unknown form of the mask token, the word is appended.
        before, *after = _MASK.split(text, maxsplit=1)
        found.append(SampleRow(before if after else f"{text} ", word, "".join(after), row))
    return found


def _list_scores(result: SuiteResult) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, value, interval and baseline of each score that is not in a chart."""
    for score in result.scores:
        is_of_paradigm = result.suite == "blimp" and score.name.count("/") > 1
        if _BY_FREQUENCY.fullmatch(score.name) or is_of_paradigm:
            continue
        interval = ""
        if score.low is not None and score.high is not None:
            interval = f"{_show_number(score.low)} to {_show_number(score.high)}"
        baseline = "" if score.baseline is None else _show_number(score.baseline)
        name = score.name.removeprefix(f"{result.suite}/").replace("_", " ")
        yield name, _show_number(score.value), interval, baseline


def _list_shares(run: RunFacts) -> list[tuple[str, str]]:
    shares = run.share_time()
    total = sum(seconds for _, seconds in shares) or 1.0
    return [
        (name, f"{s / 60:,.1f} minutes, {100 * s / total:.0f}\N{NO-BREAK SPACE}%")
        for name, s in shares
    ]


def _list_sources(run: RunFacts) -> Iterator[tuple[str, str]]:
    for name in of_sources(dict(run.last), LOSS.name):
        scores = (
            f"{line.headline} {_describe_score(run.last, line, run.first, f'/{name}')}"
            for line in (LOSS, ACCURACY)
        )
        yield name, ", ".join(scores)


def _describe_text(manifest: Manifest) -> list[Row]:
    train = manifest.splits["train"]
    return [
        ("documents", f"{train.num_documents:,}"),
        ("words", f"{train.num_words:,}"),
        ("tokens", f"{train.num_tokens:,}"),
        ("tokens per word", f"{train.num_tokens / max(1, train.num_words):.3f}"),
        ("characters per token", f"{train.num_characters / max(1, train.num_tokens):.2f}"),
        ("vocabulary", f"{manifest.vocab_size:,}"),
        *((f"dropped or repaired: {reason}", f"{n:,}") for reason, n in manifest.dropped.items()),
    ]


def _name_bar(group: str) -> str:
    """Return a phenomenon, or for a power of ten the range of training counts; bin 0 is 0 to 9."""
    if not group.isdecimal():
        return group
    decade = int(group)
    return f"{10**decade if decade else 0:,} to {10 ** (decade + 1) - 1:,} times"
