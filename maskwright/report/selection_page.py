"""The page of `prepare --report`: counts of documents, and samples of those that a rule drops."""

from collections.abc import Iterator

from maskwright.report.charts import check_matplotlib, draw_counts
from maskwright.report.templates import fill_template, flatten
from maskwright.runs.run_directory import shorten_provenance
from maskwright.selection.selector import KEPT, Tally
from maskwright.shards.manifest import Manifest

_MAX_LANGUAGES = 20


def render_selection(name: str, manifest: Manifest, tally: Tally) -> str:
    """Return the page as HTML.

    Raises:
        InputError: the extra ``plots`` is not installed.
    """
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
    """Yield the title and the SVG of each chart."""
    powers = range(min(tally.lengths, default=0), max(tally.lengths, default=0) + 1)
    lengths = {f"{2**power >> 1:,}": tally.lengths[power] for power in powers}
    title = "Document lengths in characters (smallest of each bin)"
    yield title, draw_counts(lengths, title)
    if tally.languages:
        title = "Languages"
        yield title, draw_counts(dict(tally.languages.most_common(_MAX_LANGUAGES)), title)
