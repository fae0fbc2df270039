"""Charts: curves and bars as SVG for reports, and learning curves as files."""

import importlib
import importlib.util
import io
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from maskwright.errors import make_line
from maskwright.extras import check_extra
from maskwright.files import replacing_file
from maskwright.logs import Record
from maskwright.objectives.scores import ACCURACY, LOSS

# The palette of Okabe and Ito, which color-blind readers can distinguish; lines also have markers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, FAINT = "#333333", "#8a8a8a"
_GRID, _INTERVAL = "#e6e6e6", "#222222"
_MARKERS = "osD^vPX"
_DASHED = (0, (4, 3))
_STYLE = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "maskwright",  # deterministic ids, so that equal charts are equal files
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of runs and scores may contain "$"
}
_MAX_POINTS = 400  # in a curve on a page
_MAX_LABEL = 60  # characters
_CHARACTERS_PER_INCH, _LEGEND_MARK = 13, 7  # of a legend: of its text, and the line before it
_MAX_DRAWN = 1e30  # matplotlib overflows for larger values
_SAME_LEVEL = 0.05  # baselines that differ by less are drawn as one
_COSTS = (
    ("step", "steps", 1.0),
    ("tokens", "tokens (millions)", 1e6),
    ("seconds", "wall-clock minutes", 60.0),
)
_SCORES = (
    (LOSS.name, LOSS.baseline, "validation loss (nats)"),
    (ACCURACY.name, ACCURACY.baseline, ACCURACY.title),
)
_TRAINING = (
    ("loss", "training loss"),
    ("learning_rate", "learning rate"),
    ("mask_rate", "mask rate"),
    ("row_length", "tokens per row"),
    ("grad_norm", "gradient norm"),
    ("tokens_per_second", "tokens per second"),
)


@dataclass(frozen=True)
class Curve:
    """The name of a run and the records of its metrics.jsonl in order.

    `others` are the records of further runs: those of other seeds, drawn as one curve with a band.
    """

    name: str
    records: Sequence[Record]
    others: Sequence[Sequence[Record]] = ()

    def points(self, x: str, y: str, scale: float = 1.0) -> tuple[list[float], list[float]]:
        """Return `x` divided by `scale`, and the mean of `y`, of the records that have both."""
        xs, values = self.find_runs(x, y, scale)
        return xs, [fmean(column) for column in zip(*values, strict=True)]

    def find_runs(
        self, x: str, y: str, scale: float = 1.0
    ) -> tuple[list[float], list[list[float]]]:
        """Return the points `x` that all runs have passed, and `y` of each run there."""
        known = [
            [(r[x] / scale, r[y]) for r in run if _can_draw(r, x) and _can_draw(r, y)]
            for run in (self.records, *self.others)
        ]
        known = [run for run in known if run]
        if len(known) < 2:
            [only] = known or [[]]
            return [a for a, _ in only], [[b for _, b in only]] * len(known)
        # Runs of one arm may be validated at other times: at those of the first one, interpolate.
        begin, end = max(run[0][0] for run in known), min(run[-1][0] for run in known)
        xs = sorted({min(max(a, begin), end) for a, _ in known[0]} if begin <= end else ())
        return xs, [
            [float(b) for b in np.interp(xs, [a for a, _ in run], [b for _, b in run])]
            for run in known
        ]


def _can_draw(record: Record, name: str) -> bool:
    value = record.get(name)
    return isinstance(value, int | float) and abs(value) < _MAX_DRAWN


def has_matplotlib() -> bool:
    """Return True if the extra ``plots`` is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_matplotlib() -> None:
    """Raise MissingPackageError unless the extra ``plots`` is installed."""
    check_extra("matplotlib", "plots", "a plot")


@contextmanager
def _making_figure(width: float, height: float) -> Generator[Any]:
    """Yield an empty figure; within the context, all charts have one style."""
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The browser has fonts for all scripts; matplotlib only measures widths with its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield figures.Figure(figsize=(width, height), layout="constrained")


def render(draw: Callable[[Any], None], width: float, height: float, label: str) -> str:
    """Return scalable SVG of the figure that `draw` fills, with `label` for screen readers."""
    file = io.StringIO()
    with _making_figure(width, height) as figure:
        draw(figure)
        figure.savefig(file, format="svg", metadata={"Date": None})
    attributes, _, content = file.getvalue().partition("<svg")[2].partition(">")
    attributes = re.sub(r' (width|height)="[^"]*"', "", attributes)
    return f'<svg role="img" aria-label="{escape(label)}"{attributes}>{content}'


def plot_curves(curves: Sequence[Curve], folder: Path, note: str = "") -> list[Path]:
    """Write ``curves.png`` and ``curves.svg``: loss and accuracy by step, tokens and time.

    `curves` are the validation records of each run, `note` is a line below the charts. Raise as
    `check_matplotlib`.
    """
    check_matplotlib()
    # No date, so that equal charts are equal files.
    formats = {"png": {"Software": None}, "svg": {"Date": None}}
    with _making_figure(11, 6.4) as figure:
        _draw_curves(figure, curves)
        if note:
            figure.supxlabel(note, x=0.01, ha="left", fontsize=8.5, color=FAINT)
        for name, metadata in formats.items():
            with replacing_file(folder / f"curves.{name}") as temporary:
                figure.savefig(temporary, format=name, dpi=160, metadata=metadata)
    return [folder / f"curves.{name}" for name in formats]


def draw_learning(curves: Sequence[Curve]) -> dict[str, str]:
    """Return validation loss and accuracy on [MASK] with baselines: a chart for each cost.

    The keys are ``steps``, ``tokens (millions)`` and so on.
    """
    return {
        cost[1]: render(
            lambda figure, cost=cost: _draw_curves(figure, curves, [cost]),
            5.5,
            5.5,
            f"Validation loss and {ACCURACY.title} against {cost[1]}",
        )
        for cost in _COSTS
    }


def _draw_curves(
    figure: Any, curves: Sequence[Curve], costs: Sequence[tuple[str, str, float]] = _COSTS
) -> None:
    grid = figure.subplots(len(_SCORES), len(costs), sharex="col", sharey="row", squeeze=False)
    for row, score in zip(grid, _SCORES, strict=True):
        for axes, cost in zip(row, costs, strict=True):
            _draw_panel(axes, curves, cost, score)
        row[0].set_ylabel(score[2])
    for axes, (_, label, _) in zip(grid[-1], costs, strict=True):
        axes.set_xlabel(label)
    figure.align_ylabels(grid[:, 0])
    handles, labels = grid[0][0].get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    fitting = int(_CHARACTERS_PER_INCH * figure.get_figwidth() // (longest + _LEGEND_MARK))
    ncols = max(1, min(len(labels), 4, fitting))
    figure.legend(handles, labels, loc="outside upper left", ncols=ncols, frameon=False)


def _draw_panel(
    axes: Any, curves: Sequence[Curve], cost: tuple[str, str, float], score: tuple[str, str, str]
) -> None:
    (x, _, scale), (y, baseline, _) = cost, score
    for number, curve in enumerate(curves):
        xs, runs = curve.find_runs(x, y, scale)
        if not xs:
            continue
        color = COLORS[number % len(COLORS)]
        columns = list(zip(*runs, strict=True))
        if len(runs) > 1:
            lows, highs = ([pick(column) for column in columns] for pick in (min, max))
            axes.fill_between(xs, lows, highs, color=color, alpha=0.2, linewidth=0)
        axes.plot(
            xs,
            [fmean(column) for column in columns],
            color=color,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4.5,
            linewidth=1.6,
            # matplotlib omits labels that begin with "_" from the legend.
            label=f" {_shorten(curve.name)}",
            clip_on=False,
        )
    levels = _merge_levels(
        (level, COLORS[number % len(COLORS)])
        for number, curve in enumerate(curves)
        for level in curve.points(x, baseline, scale)[1]
    )
    for level, color in levels:
        # Each of several baselines has the color of its run.
        color = color if len(levels) > 1 else FAINT
        axes.axhline(level, color=color, linewidth=1, linestyle=_DASHED, zorder=0)
    if levels:
        annotate_level(axes, levels[-1][0], "unigram baseline")
    axes.set_xlim(left=0)
    if y != "loss":
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)


def annotate_level(axes: Any, level: float, name: str) -> None:
    """Write the name of a horizontal line at its right end."""
    axes.annotate(
        name,
        (1, level),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8,
        color=FAINT,
    )


def _merge_levels(levels: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return distinct levels, as baselines vary slightly with the text of each validation."""
    kept: list[tuple[float, str]] = []
    for level, color in sorted(levels):
        if not kept or level > kept[-1][0] * (1 + _SAME_LEVEL):
            kept.append((level, color))
    return kept


def draw_training(curves: Sequence[Curve]) -> str:
    """Return a chart of each training metric by step."""

    def draw(figure: Any) -> None:
        grid = figure.subplots(2, 3, sharex=True)
        for axes, (name, label) in zip(grid.flat, _TRAINING, strict=True):
            for number, curve in enumerate(curves):
                steps, values = (_thin(one) for one in curve.points("step", name))
                axes.plot(steps, values, color=COLORS[number % len(COLORS)], linewidth=1.2)
            axes.set_title(label, loc="left", fontsize=9.5)
            axes.grid(axis="y", color=_GRID, linewidth=0.8)
            if name != "loss":
                axes.set_ylim(bottom=0)
        for axes in grid[-1]:
            axes.set_xlabel("steps")

    return render(draw, 11, 4.6, "Training loss, rates, row length, gradient norm, speed by step")


def _thin(values: Sequence[float]) -> list[float]:
    """Return at most `_MAX_POINTS` means of neighboring values."""
    num_parts = min(len(values), _MAX_POINTS)
    return [
        fmean(values[len(values) * n // num_parts : len(values) * (n + 1) // num_parts])
        for n in range(num_parts)
    ]


def draw_scores(
    scores: Mapping[str, tuple[float, float | None, float | None]],
    label: str,
    chance: float | None = None,
) -> str:
    """Return a bar for each score (value, low, high) from 0 to 1, with a line at `chance`."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        names = [name.replace("_", " ") for name in scores]
        _draw_bars(axes, names, [value for value, _, _ in scores.values()])
        for position, (value, low, high) in enumerate(scores.values()):
            if low is not None and high is not None:
                axes.plot([low, high], [position, position], color=_INTERVAL, linewidth=1.2)
            axes.text(1.01, position, f"{value:.3f}", va="center", fontsize=8.5)
        axes.set_xlim(0, 1)
        if chance is not None:
            axes.axvline(chance, color=FAINT, linewidth=1, linestyle=_DASHED)

    return render(draw, 8, 0.6 + 0.3 * len(scores), label)


def draw_counts(counts: Mapping[str, int], label: str) -> str:
    """Return a bar for each count of documents."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        _draw_bars(axes, counts, list(counts.values()))
        for position, value in enumerate(counts.values()):
            axes.text(value, position, f" {value:,}", va="center", fontsize=8.5)
        axes.set_xlim(0, 1.15 * max([*counts.values(), 1]))
        axes.set_xlabel("documents")

    return render(draw, 8, 0.7 + 0.26 * len(counts), label)


def draw_scatter(points: Sequence[tuple[Any, float]], x: str, y: str) -> str:
    """Return a point for each trial of a sweep: a setting against the score."""
    try:  # the choices of a sweep are text
        numbers = [float(value) for value, _ in points]
    except ValueError:
        numbers = []
        points = sorted((str(value), score) for value, score in points)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        values = numbers or [value for value, _ in points]
        axes.plot(values, [score for _, score in points], "o", color=COLORS[0], alpha=0.7)
        if numbers and min(numbers) > 0 and max(numbers) > 10 * min(numbers):
            axes.set_xscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="y", color=_GRID, linewidth=0.8)

    return render(draw, 7, 3.2, f"{y} against {x}")


def _draw_bars(axes: Any, names: Iterable[str], values: Sequence[float]) -> None:
    """Draw horizontal bars from the top down, each with its name on the left."""
    axes.barh(range(len(values)), values, color=COLORS[0], height=0.7)
    axes.set_yticks(range(len(values)), [_shorten(name) for name in names])
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _shorten(name: str) -> str:
    """Return a name as a label: printable, and short enough for the chart."""
    line = make_line(name)
    return line if len(line) <= _MAX_LABEL else f"{line[: _MAX_LABEL - 1]}…"


def draw_lengths(lengths: Sequence[int]) -> str:
    """Return a histogram of the lengths of documents, in tokens."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        longest = max(max(lengths), 2)
        bins = sorted({int((longest + 1) ** (n / 39)) for n in range(40)})
        axes.hist(lengths, bins=bins, color=COLORS[0])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("")
        axes.set_xlabel("tokens per document")
        axes.set_ylabel("documents")

    return render(draw, 8, 2.8, "Histogram of the lengths of documents")
