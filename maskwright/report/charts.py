"""Charts of a report as SVG, to stand in a page."""

import importlib
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from maskwright.errors import make_line
from maskwright.logs import Record
from maskwright.report.facts import RunFacts
from maskwright.report.plots import COLORS, FAINT, MOST_DRAWN, STYLE, Curve, draw_curves

_MOST_POINTS = 400
_LONGEST_LABEL = 60
_HEADER = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*"', re.DOTALL)
_HEIGHT = re.compile(r'(<svg[^>]*?) height="[^"]*"', re.DOTALL)
_TRAINING = (
    ("loss", "training loss"),
    ("learning_rate", "learning rate"),
    ("mask_rate", "share of hidden tokens"),
    ("row_length", "tokens a row"),
    ("grad_norm", "norm of the gradient"),
    ("tokens_per_second", "tokens a second"),
)


def render(draw: Callable[[Any], None], width: float, height: float, label: str) -> str:
    """The SVG of a figure that `draw` fills, scalable, with a text for those who do not see it."""
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # The browser has fonts for all scripts; only widths are measured with matplotlib's.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = _HEADER.sub("", file.getvalue(), count=1)
    svg = _HEIGHT.sub(r"\1", _SIZE.sub(r"\1", svg, count=1), count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)


def draw_learning(runs: Sequence[RunFacts]) -> str:
    """Loss and masked accuracy against steps, tokens and minutes, with the unigram baseline."""
    curves = [Curve(run.name, run.validations) for run in runs]
    label = "Validation loss and masked accuracy against steps, tokens and minutes"
    return render(lambda figure: draw_curves(figure, curves), 11, 6, label)


def draw_training(runs: Sequence[RunFacts]) -> str:
    """What every step did: rates, lengths, norms, speed."""

    def draw(figure: Any) -> None:
        grid = figure.subplots(2, 3, sharex=True)
        for axes, (name, label) in zip(grid.flat, _TRAINING, strict=True):
            for number, run in enumerate(runs):
                steps, values = thin(run.training, name)
                axes.plot(steps, values, color=COLORS[number % len(COLORS)], linewidth=1.2)
            axes.set_title(label, loc="left", fontsize=9.5)
            axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
            if name != "loss":
                axes.set_ylim(bottom=0)
        for axes in grid[-1]:
            axes.set_xlabel("steps")

    return render(draw, 11, 4.6, "Training loss, rates, row length, gradient norm, speed by step")


def thin(records: Sequence[Record], name: str) -> tuple[list[float], list[float]]:
    """Steps and values, of long runs the means of neighbours."""
    found = [(r["step"], r.get(name)) for r in records]
    known = [(s, v) for s, v in found if isinstance(v, int | float) and abs(v) < MOST_DRAWN]
    if not known:
        return [], []
    parts = np.array_split(np.array(known, float), min(len(known), _MOST_POINTS))
    means = [part.mean(0) for part in parts]
    return [float(m[0]) for m in means], [float(m[1]) for m in means]


def draw_bars(
    scores: Mapping[str, tuple[float, float | None, float | None]],
    label: str,
    chance: float | None = None,
) -> str:
    """A bar for each score, with its interval, and a dashed line where chance is."""
    names = list(scores)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for place, (value, low, high) in enumerate(scores.values()):
            axes.barh(place, value, color=COLORS[0], height=0.7)
            if low is not None and high is not None:
                axes.plot([low, high], [place, place], color="#222222", linewidth=1.2)
            axes.text(1.01, place, f"{value:.3f}", va="center", fontsize=8.5)
        axes.set_yticks(range(len(names)), [_shorten(name.replace("_", " ")) for name in names])
        axes.set_xlim(0, 1)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        if chance is not None:
            axes.axvline(chance, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))

    return render(draw, 8, 0.6 + 0.3 * len(names), label)


def _shorten(name: str) -> str:
    """A name as a label: printable, and no longer than the chart has room for."""
    line = make_line(name)
    return line if len(line) <= _LONGEST_LABEL else f"{line[: _LONGEST_LABEL - 1]}…"


def draw_lengths(lengths: Sequence[int]) -> str:
    """How long documents are, in tokens."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        top = max(max(lengths), 2)
        bins = np.unique(np.geomspace(1, top + 1, 40).astype(int))
        axes.hist(lengths, bins=bins, color=COLORS[0])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_xlabel("tokens of a document")
        axes.set_ylabel("documents")

    return render(draw, 8, 2.8, "Histogram of the lengths of documents")


def draw_counts(counts: Mapping[str, int], label: str) -> str:
    """A bar for each name, as long as its count."""
    names, values = list(counts), list(counts.values())

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.barh(range(len(names)), values, color=COLORS[0], height=0.7)
        for place, value in enumerate(values):
            axes.text(value, place, f" {value:,}", va="center", fontsize=8.5)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlim(0, 1.15 * max([*values, 1]))
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("documents")

    return render(draw, 8, 0.7 + 0.26 * len(names), label)
