"""Learning curves as pictures: what runs scored on held-out text, against what it cost them."""

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.errors import InputError, make_line
from maskwright.files import replacing_file
from maskwright.logs import Record

FORMATS = ("png", "svg")
# Okabe and Ito's colours, which the colour-blind can tell apart; lines also differ in markers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_SAME_LEVEL = 0.05
MOST_DRAWN = 1e30  # larger values make matplotlib's own arithmetic overflow
_INK, FAINT = "#333333", "#8a8a8a"
STYLE = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "svg.hashsalt": "maskwright",  # the same picture is the same file
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of runs and scores may hold $
}


@dataclass(frozen=True)
class Curve:
    """The validations of one run, in order: records of metrics.jsonl."""

    name: str
    records: Sequence[Record]

    def points(self, x: str, y: str, scale: float) -> tuple[list[float], list[float]]:
        """Where both values are known."""
        known = [
            (r[x] / scale, r[y]) for r in self.records if _is_number(r, x) and _is_number(r, y)
        ]
        return [a for a, _ in known], [b for _, b in known]


_COSTS = (
    ("step", "steps", 1.0),
    ("tokens", "tokens (millions)", 1e6),
    ("seconds", "minutes of wall-clock", 60.0),
)
_SCORES = (
    ("loss", "unigram_loss", "validation loss (nats)"),
    ("masked_accuracy", "unigram_accuracy", "masked accuracy"),
)


def check_matplotlib() -> None:
    """That pictures can be made.

    Raises:
        InputError: the extra ``plots`` is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("plots need matplotlib: pip install 'maskwright[plots]'")


def plot_curves(curves: Sequence[Curve], folder: Path, note: str = "") -> list[Path]:
    """Loss and masked accuracy against steps, tokens and minutes: ``curves.png`` and ``.svg``.

    Args:
        note: a line below the picture.

    Raises:
        InputError: as `check_matplotlib`.
    """
    check_matplotlib()
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(11, 6.4), layout="constrained")
        draw_curves(figure, curves)
        if note:
            figure.supxlabel(note, x=0.01, ha="left", fontsize=8.5, color=FAINT)
        return [_save(figure, folder / f"curves.{kind}", kind) for kind in FORMATS]


def draw_curves(figure: Any, curves: Sequence[Curve]) -> None:
    """Fills a figure with a panel for each score against each cost."""
    grid = figure.subplots(len(_SCORES), len(_COSTS), sharex="col", sharey="row")
    for row, score in zip(grid, _SCORES, strict=True):
        for axes, cost in zip(row, _COSTS, strict=True):
            _draw_panel(axes, curves, cost, score)
        row[0].set_ylabel(score[2])
    for axes, (_, label, _) in zip(grid[-1], _COSTS, strict=True):
        axes.set_xlabel(label)
    figure.align_ylabels(grid[:, 0])
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper left", ncols=min(len(labels) or 1, 4), frameon=False
    )


def _write_out(name: str) -> str:
    """A name as it is: matplotlib leaves out of a legend what begins with ``_``."""
    return f" {make_line(name)}"


def _draw_panel(
    axes: Any,
    curves: Sequence[Curve],
    cost: tuple[str, str, float],
    score: tuple[str, str, str],
) -> None:
    (x, _, scale), (y, baseline, _) = cost, score
    for number, curve in enumerate(curves):
        xs, ys = curve.points(x, y, scale)
        if not xs:
            continue
        axes.plot(
            xs,
            ys,
            color=COLORS[number % len(COLORS)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4.5,
            linewidth=1.6,
            label=_write_out(curve.name),
            clip_on=False,
        )
    levels = _merge_levels(
        [
            (level, COLORS[number % len(COLORS)])
            for number, curve in enumerate(curves)
            for level in curve.points(x, baseline, scale)[1]
        ]
    )
    for level, color in levels:
        # Of several baselines each has the colour of its run.
        color = color if len(levels) > 1 else FAINT
        axes.axhline(level, color=color, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    if levels:
        is_loss = y == "loss"
        axes.annotate(
            "token frequencies" if is_loss else "always the most frequent token",
            (1, levels[-1][0]),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            color=FAINT,
        )
    axes.set_xlim(left=0)
    if y != "loss":
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)


def _merge_levels(levels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The levels that can be told apart: a validation's own text moves a baseline a little."""
    kept: list[tuple[float, str]] = []
    for level, color in sorted(levels):
        if not kept or level > kept[-1][0] * (1 + _SAME_LEVEL):
            kept.append((level, color))
    return kept


def _save(figure: Any, path: Path, kind: str) -> Path:
    with replacing_file(path) as temporary:
        # A date would make the same picture another file.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)
    return path


def _is_number(record: Record, name: str) -> bool:
    value = record.get(name)
    return isinstance(value, int | float) and abs(value) < MOST_DRAWN
