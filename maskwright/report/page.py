"""``report.html``: a run, or several side by side, in one page without anything from elsewhere."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwright.errors import InputError, show_value
from maskwright.report.charts import draw_bars, draw_learning, draw_lengths, draw_training
from maskwright.report.facts import RunFacts
from maskwright.report.plots import check_matplotlib
from maskwright.report.samples import mark_lines, tabulate_samples
from maskwright.report.templates import fill_template
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.train.panel import of_sources

_DECADE = re.compile(r"frequency_1e(\d{1,2})/(.*)")
_ACCURACY = "masked_accuracy"
_PHENOMENA = "blimp/"
_MEAN = "blimp/mean_over"
_MOST_BARS = 100
_MOST_DEPTH = 8
_SIZES = (
    ("preset", "{}"),
    ("num_hidden_layers", "{} layers"),
    ("hidden_size", "width {}"),
    ("num_attention_heads", "{} heads"),
    ("intermediate_size", "MLP width {}"),
)
Bars = dict[str, tuple[float, float | None, float | None]]


def render_page(runs: Sequence[RunFacts]) -> str:
    """The page; of one run all there is, of several their curves and figures.

    Raises:
        InputError: the extra ``plots`` is not installed, or no run has begun.
    """
    check_matplotlib()
    if not any(run.records for run in runs):
        raise InputError(f"{runs[0].name} has no line in metrics.jsonl yet: nothing to report.")
    return fill_template(
        "report.html.j2",
        title=" · ".join(run.name for run in runs),
        runs=[describe_run(run) for run in runs],
        learning=draw_learning(runs),
        notes=list(_list_notes(runs)),
        differences=list(_list_differences(runs)),
        sections=[*describe_sections(runs[0])] if len(runs) == 1 else [_draw_steps(runs)],
    )


def _list_notes(runs: Sequence[RunFacts]) -> Iterator[str]:
    """What the curves do not say by themselves."""
    if any(run.last.get("final") for run in runs):
        yield (
            "The last point of a finished run is on more of the held-out text than those before "
            "it, so it may lie a little beside their line."
        )
    # What a run began with, whether or not its prepared data are still there.
    corpora = (run.provenance.get("corpus") for run in runs)
    texts = {str(corpus.get("fingerprint")) for corpus in corpora if isinstance(corpus, Mapping)}
    if len(texts) > 1:
        yield (
            "The runs were trained and scored on different text, or in different tokens: their "
            "losses and accuracies do not compare. maskwright compare --data scores all on one."
        )


def _list_differences(runs: Sequence[RunFacts]) -> Iterator[tuple[str, list[str]]]:
    """The settings that are not the same in all runs, and what they are in each."""
    configs = [dict(_flatten(run.config)) for run in runs]
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name, "") for config in configs]
        if len(set(values)) > 1:
            yield name, values


def describe_run(run: RunFacts) -> dict[str, Any]:
    """The figures at the top: what it is, what it scored, and what it cost."""
    last, provenance = run.last, run.provenance
    facts = {
        "model": _describe_model(run),
        "recipe": show_value(provenance.get("recipe") or "not recorded"),
        "validation loss": _beside(last, "loss", "unigram_loss", "token frequencies"),
        "masked accuracy": _beside(
            last, "masked_accuracy", "unigram_accuracy", "the most frequent token"
        ),
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
    """Parameters and architecture, as far as the run says."""
    sizes, count = run.config.get("model"), run.provenance.get("num_parameters")
    sizes = sizes if isinstance(sizes, Mapping) else {}
    parts = [f"{count:,} parameters"] if isinstance(count, int) else []
    parts += [form.format(show_value(sizes[name])) for name, form in _SIZES if sizes.get(name)]
    return ", ".join(parts) or "not recorded"


def _show_number(value: float) -> str:
    """Three digits behind the point, unless that would be a long row of them."""
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3g}"


def _beside(record: Mapping[str, Any], name: str, baseline: str, words: str) -> str:
    value, other = record.get(name), record.get(baseline)
    if not isinstance(value, int | float):
        return "none yet"
    beside = f" ({words}: {_show_number(other)})" if isinstance(other, int | float) else ""
    return f"{_show_number(value)}{beside}"


def describe_sections(run: RunFacts) -> Iterator[dict[str, Any]]:
    """Title and content of each section about one run, those without content left out."""
    if picked := run.pick_samples():
        yield {"title": "What it filled in", **_describe_samples(picked)}
    for result in run.evaluation:
        shown = list(_list_scores(result))
        yield {
            "title": _describe_suite(result),
            "scores": [score for score in shown if "/" not in score[0]],
            "details": [score for score in shown if "/" in score[0]],
        }
    yield _draw_steps([run])
    found = list(_list_sources(run.last))
    if found:
        yield {"title": "Source by source", "table": found}
    yield {"title": "Where the time went", "table": _list_shares(run)}
    if decades := _find_decades(run.find_scores("mlm")):
        label = "Masked accuracy by how often a token occurs in training"
        label += run.describe_extent("mlm")
        yield {"title": label, "svg": draw_bars(decades, label)}
    if phenomena := _find_phenomena(run.find_scores("blimp")):
        label = f"BLiMP by phenomenon (chance: 0.5){run.describe_extent('blimp')}"
        yield {"title": label, "svg": draw_bars(phenomena, label, chance=0.5)}
    if run.manifest:
        chart = draw_lengths(run.document_lengths) if len(run.document_lengths) else None
        yield {"title": "Text and tokenizer", "table": _describe_text(run.manifest), "svg": chart}
    yield {"title": "Configuration", "table": list(_flatten(run.config))}
    yield {"title": "Provenance", "table": list(_flatten(run.provenance))}


def _draw_steps(runs: Sequence[RunFacts]) -> dict[str, Any]:
    return {"title": "The training", "svg": draw_training(runs)}


def _describe_samples(picked: Sequence[tuple[str, Sequence[str]]]) -> dict[str, Any]:
    if found := tabulate_samples(picked):
        times, rows = found
        return {"times": times, "rows": rows}
    return {"samples": [(when, mark_lines(lines)) for when, lines in picked]}


def _describe_suite(result: SuiteResult) -> str:
    extent = ", with --fast" if result.settings.get("fast") else ""
    return f"Scores of {result.suite} on {show_value(result.data.get('name', 'a text'))}{extent}"


def _list_scores(result: SuiteResult) -> Iterator[tuple[str, str, str, str]]:
    """Name, value, interval and baseline of each score that no chart shows."""
    for score in result.scores:
        if _DECADE.fullmatch(score.name) or score.name.count("/") > 1:
            continue
        interval = ""
        if score.low is not None and score.high is not None:
            interval = f"{_show_number(score.low)} to {_show_number(score.high)}"
        baseline = "" if score.baseline is None else _show_number(score.baseline)
        name = score.name.removeprefix(f"{result.suite}/").replace("_", " ")
        yield name, _show_number(score.value), interval, baseline


def _find_decades(scores: Sequence[Score]) -> Bars:
    """Masked accuracies by how often tokens occur in training."""
    found = ((_DECADE.fullmatch(score.name), score) for score in scores)
    return {
        _describe_decade(int(named[1])): (score.value, score.low, score.high)
        for named, score in found
        if named and named[2] == _ACCURACY and 0 <= score.value <= 1
    }


def _find_phenomena(scores: Sequence[Score]) -> Bars:
    found = {
        score.name.removeprefix(_PHENOMENA): (score.value, score.low, score.high)
        for score in scores
        if score.name.startswith(_PHENOMENA)
        and score.name.count("/") == 1
        and not score.name.startswith(_MEAN)
        and 0 <= score.value <= 1
    }
    return dict(list(found.items())[:_MOST_BARS])


def _list_shares(run: RunFacts) -> list[tuple[str, str]]:
    shares = run.share_time()
    total = sum(seconds for _, seconds in shares) or 1.0
    return [(name, f"{s / 60:,.1f} minutes, {100 * s / total:.0f} %") for name, s in shares]


def _list_sources(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the last validation says of each source, where there are several."""
    for name in of_sources(dict(record), "loss"):
        loss = _beside(record, f"loss/{name}", f"unigram_loss/{name}", "token frequencies")
        accuracy = _beside(
            record, f"masked_accuracy/{name}", f"unigram_accuracy/{name}", "most frequent token"
        )
        yield name, f"loss {loss}, masked accuracy {accuracy}"


def _describe_text(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    train = manifest["splits"]["train"]
    facts = [
        ("documents", f"{train['num_documents']:,}"),
        ("words", f"{train['num_words']:,}"),
        ("tokens", f"{train['num_tokens']:,}"),
        ("tokens a word", f"{train['num_tokens'] / max(1, train['num_words']):.3f}"),
        ("characters a token", f"{train['num_characters'] / max(1, train['num_tokens']):.2f}"),
        ("vocabulary", f"{manifest['vocab_size']:,}"),
    ]
    dropped: Mapping[str, int] = manifest.get("dropped", {})
    facts += [(f"dropped or repaired: {reason}", f"{n:,}") for reason, n in dropped.items()]
    return facts


def _describe_decade(decade: int) -> str:
    """Which training counts the frequency bin of that number holds; 0 to 9 are one bin."""
    return f"{10**decade if decade else 0:,} to {10 ** (decade + 1) - 1:,} times"


def _flatten(
    values: Mapping[Any, Any], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        name = f"{prefix}{show_value(name)}"
        if isinstance(value, Mapping) and depth < _MOST_DEPTH:
            yield from _flatten(value, f"{name}.", depth + 1)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield name, " ".join(value) if name == "command" else ", ".join(value)
        else:
            yield name, show_value(value)
