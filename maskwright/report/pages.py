"""HTML templates in this folder, filled; the pages of `prepare --report` and of a sweep."""

import importlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

from maskwright.errors import show_value
from maskwright.report.charts import check_matplotlib, draw_counts, draw_scatter, has_matplotlib
from maskwright.runs.run_directory import shorten_provenance
from maskwright.selection.selector import KEPT, Tally
from maskwright.shards.manifest import Manifest

NO_SCORE = "no score"  # of a trial that failed, or whose score is undefined
_MAX_DEPTH = 8  # of a configuration file, which is not validated


def fill_template(name: str, **content: Any) -> str:
    """Return a page as HTML, with all content escaped."""
    jinja: Any = importlib.import_module("jinja2")  # imported late, as few commands write a page
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_read), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.get_template(name).render(**content)
    return page.encode("utf-8", "replace").decode()  # JSON may contain unpaired surrogates


def _read(name: str) -> str:
    return files("maskwright.report").joinpath(name).read_text(encoding="utf-8")


def flatten(
    values: Mapping[Any, object], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the value, as text, of each leaf of a nested mapping."""
    for key, value in values.items():
        name = f"{prefix}{show_value(key)}"
        items = cast(list[object], value) if isinstance(value, list) else [None]
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            yield from flatten(cast(Mapping[Any, object], value), f"{name}.", depth + 1)
        elif all(isinstance(item, str) for item in items):
            yield name, (" " if name == "command" else ", ").join(map(str, items))
        else:
            yield name, show_value(cast(object, value))


_MAX_LANGUAGES = 20


def render_selection(name: str, manifest: Manifest, tally: Tally) -> str:
    """Return the page as HTML; raise InputError if the extra ``plots`` is not installed."""
    check_matplotlib()
    source = shorten_provenance(manifest.source)
    return fill_template(
        "selection.html.j2",
        title=name,
        facts=[*_list_facts(manifest, tally), ("text", ", ".join(source["paths"]))],
        fates=[("kept", tally.kept), *tally.dropped.most_common()],
        elsewhere=[
            (reason, count)
            for reason, count in manifest.dropped.items()
            if reason not in tally.dropped and reason not in tally.repaired
        ],
        repaired=tally.repaired.most_common(),
        total=max(1, tally.read),
        charts=list(_draw_charts(tally)),
        samples=[
            (fate, [text for _, text in tally.samples[fate]])
            for fate in sorted(tally.samples, key=lambda fate: (fate == KEPT, fate))
        ],
        select=list(flatten(source.get("select", {}), "select.")),
    )


def _list_facts(manifest: Manifest, tally: Tally) -> Iterator[tuple[str, str]]:
    train, valid = manifest.splits["train"], manifest.splits["valid"]
    yield "documents read", f"{tally.read:,}"
    yield "documents kept by selection", f"{tally.kept:,} ({tally.kept / max(1, tally.read):.1%})"
    yield "characters in kept documents", f"{tally.characters:,}"
    yield "training documents", f"{train.num_documents:,}"
    yield "training tokens", f"{train.num_tokens:,}"
    yield "validation documents", f"{valid.num_documents:,}"


def _draw_charts(tally: Tally) -> Iterator[tuple[str, str]]:
    powers = range(min(tally.lengths, default=0), max(tally.lengths, default=0) + 1)
    lengths = {f"{2**power >> 1:,}": tally.lengths[power] for power in powers}
    title = "Document lengths in characters (smallest of each bin)"
    yield title, draw_counts(lengths, title)
    if tally.languages:
        title = "Languages"
        yield title, draw_counts(dict(tally.languages.most_common(_MAX_LANGUAGES)), title)


Row = tuple[str, bool, float | None, Mapping[str, float | int | str]]


def render_sweep(name: str, goal: str, best: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the page as HTML; without matplotlib it has no charts.

    Args:
        goal: the name of the score.
        best: the command of the best trial.
        rows: the folder of each trial, whether it has a report, its score and settings, best first.
    """
    settings = list(rows[0][3])
    scored = [(found, score) for _, _, score, found in rows if score is not None]
    charts = [
        (setting, draw_scatter([(found[setting], x) for found, x in scored], setting, goal))
        for setting in settings
        if scored and has_matplotlib()
    ]
    shown = [
        (trial, reports, NO_SCORE if score is None else f"{score:.4f}", map(str, found.values()))
        for trial, reports, score, found in rows
    ]
    return fill_template(
        "sweep.html.j2",
        title=name,
        goal=goal,
        best=shlex.join(best),
        settings=settings,
        rows=shown,
        charts=charts,
    )
