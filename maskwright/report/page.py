"""``report.html``: a run, or several side by side, in one page without anything from elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwright.errors import InputError
from maskwright.report.charts import draw_bars, draw_learning, draw_lengths, draw_training
from maskwright.report.facts import RunFacts
from maskwright.report.plots import check_matplotlib
from maskwright.report.templates import fill_template
from maskwright.train.panel import of_sources, split_sample

_FREQUENCY = "frequency_1e"
_PHENOMENA = "blimp/"
_MEAN = "blimp/mean_over"


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
        training=draw_training(runs),
        sections=[*describe_sections(runs[0])] if len(runs) == 1 else [],
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
    texts = {corpus.get("fingerprint") for corpus in corpora if isinstance(corpus, Mapping)}
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
    """The figures at the top: what it scored, and what it cost."""
    last = run.last
    facts = {
        "validation loss": _beside(last, "loss", "unigram_loss", "token frequencies"),
        "masked accuracy": _beside(
            last, "masked_accuracy", "unigram_accuracy", "the most frequent token"
        ),
        "steps": f"{max((r['step'] for r in run.records), default=0):,}",
        "tokens": f"{max((r['tokens'] for r in run.records), default=0):,}",
        "minutes": f"{max((r['seconds'] for r in run.records), default=0) / 60:.1f}",
        "hardware": f"{run.provenance.get('cpu_count', '?')} cores, {run.provenance.get('cpu')}",
        "begun": run.provenance.get("started", "?"),
    }
    state = "finished" if run.is_finished else "not finished"
    return {"name": run.name, "state": state, "facts": facts}


def _beside(record: Mapping[str, Any], name: str, baseline: str, words: str) -> str:
    value, other = record.get(name), record.get(baseline)
    if not isinstance(value, int | float):
        return "none yet"
    beside = f" ({words}: {other:.3f})" if isinstance(other, int | float) else ""
    return f"{value:.3f}{beside}"


def describe_sections(run: RunFacts) -> Iterator[dict[str, Any]]:
    """Title and content of each section about one run, those without content left out."""
    samples = run.pick_samples()
    if samples:
        yield {"title": "What it filled in", "samples": [(w, _mark(s)) for w, s in samples]}
    found = list(_list_sources(run.last))
    if found:
        yield {"title": "Source by source", "table": found}
    yield {"title": "Where the time went", "table": _list_shares(run)}
    found = list(_list_scores(run.find_scores("mlm"), _FREQUENCY))
    if found:
        named = {_describe_decade(int(name)): score for name, score in found}
        label = "Masked accuracy by how often a token occurs in training"
        label += run.describe_extent("mlm")
        yield {"title": label, "svg": draw_bars(named, label)}
    found = [
        (name, score)
        for name, score in _list_scores(run.find_scores("blimp"), _PHENOMENA)
        if "/" not in name and not f"{_PHENOMENA}{name}".startswith(_MEAN)
    ]
    if found:
        label = f"BLiMP by phenomenon (chance: 0.5){run.describe_extent('blimp')}"
        yield {"title": label, "svg": draw_bars(dict(found), label, chance=0.5)}
    if run.manifest:
        chart = draw_lengths(run.document_lengths) if len(run.document_lengths) else None
        yield {"title": "Text and tokenizer", "table": _describe_text(run.manifest), "svg": chart}
    yield {"title": "Configuration", "table": list(_flatten(run.config))}
    yield {"title": "Provenance", "table": list(_flatten(run.provenance))}


def _list_scores(
    scores: Sequence[Mapping[str, Any]], prefix: str
) -> Iterator[tuple[str, tuple[float, float | None, float | None]]]:
    """The accuracies whose names begin so, without that beginning."""
    for score in scores:
        name = str(score["name"])
        if not name.startswith(prefix):
            continue
        short = name.removeprefix(prefix).removesuffix("/masked_accuracy")
        if prefix == _FREQUENCY and not name.endswith("/masked_accuracy"):
            continue
        yield short, (score["value"], score.get("low"), score.get("high"))


def _list_shares(run: RunFacts) -> list[tuple[str, str]]:
    shares = run.share_time()
    total = sum(seconds for _, seconds in shares) or 1.0
    return [(name, f"{s / 60:.1f} minutes, {100 * s / total:.0f} %") for name, s in shares]


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


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _mark(lines: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The parts of each line with the class that colours them: right, wrong, or neither."""
    return [list(split_sample(line)) for line in lines]
