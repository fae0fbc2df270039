"""The page of a sweep: its trials, and the score against each setting."""

import shlex
from collections.abc import Mapping, Sequence

from maskwright.report.charts import draw_scatter, has_matplotlib
from maskwright.report.templates import fill_template

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
        (trial, reports, "failed" if score is None else f"{score:.4f}", map(str, found.values()))
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
