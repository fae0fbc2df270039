"""The pictures of docs/reproduce.md, from the newest result files.

    python -m benchmarks.plots

Each is written as SVG, for the page, and as PNG, to be looked at; one whose result files do not
exist yet is left out.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.ablate import BASELINE, GROUPS
from benchmarks.common import RESULTS, Result, find_result
from benchmarks.reproduce import SYSTEMS, Corpus

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# Okabe and Ito's colors, which people of all kinds of sight tell apart; ours is the first.
OURS, *COLORS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#882255",
)  # fmt: skip
STYLE = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#E6E6E6", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "legend.frameon": False, "svg.hashsalt": "maskwright", "svg.fonttype": "none",
}  # fmt: skip
PANELS: dict[Corpus, str] = {
    "shakespeare": "Tiny Shakespeare, characters",
    "sentences": "90,000 sentences of Wikipedia",
    "wiki": "English Wikipedia",
}


def find_systems(folder: Path = RESULTS) -> dict[str, Result]:
    """The results of the classic systems that have ended, by name, in the order of `SYSTEMS`."""
    found = {name: find_result(f"reproduce-{name}", folder) for name in SYSTEMS}
    return {name: result for name, result in found.items() if result and result["ended"]}


def draw_classics(systems: Mapping[str, Result]) -> Figure:
    """Validation loss against wall-clock, a panel for each corpus: losses compare within one."""
    panels: list[Corpus] = [
        c for c in PANELS if any(result["corpus"] == c for result in systems.values())
    ]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 4.8), squeeze=False, layout="constrained"
    )
    for axis, corpus in zip(axes[0], panels, strict=True):
        chosen = {n: result for n, result in systems.items() if result["corpus"] == corpus}
        draw_curves(axis, chosen)
        axis.set_title(PANELS[corpus])
    axes[0][0].set_ylabel("validation loss (nats a hidden token)")
    return figure


def draw_shakespeare(systems: Mapping[str, Result]) -> Figure:
    """Rows of a constant length and rows that grow, scored on rows of the last length."""
    figure, axis = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    draw_curves(axis, systems)
    for line, (name, result) in zip(axis.get_lines(), systems.items(), strict=True):
        scored = 32 if name == "shakespeare-32" else 128
        line.set_label(f"{result['title']}, scored on rows of {scored}")
        line.set_linestyle("--" if scored == 32 else "-")
    _add_legend(axis)
    axis.set_title("Start short, go longer: Tiny Shakespeare, characters")
    axis.set_ylabel("validation loss (nats a hidden character)")
    return figure


def draw_curves(axis: Axes, systems: Mapping[str, Result]) -> None:
    """A curve for each system; that of ours is the thick one."""
    colors = iter(COLORS)
    for name, result in systems.items():
        curve = result["curve"]
        is_ours = "ours" in name or name == "shakespeare-longer"
        axis.plot(
            [point["seconds"] / 60 for point in curve],
            [point["loss"] for point in curve],
            color=OURS if is_ours else next(colors),
            linestyle=":" if name.endswith("-long") else "-",
            linewidth=2.4 if is_ours else 1.5,
            zorder=3 if is_ours else 2,
            label=result["title"].replace("`", ""),
        )
    axis.set_xlabel("minutes of wall-clock")
    axis.set_xlim(left=0)
    _add_legend(axis)


def _add_legend(axis: Axes) -> None:
    """Below the curves, from the best of them to the worst."""
    ordered = sorted(axis.get_lines(), key=lambda line: np.asarray(line.get_ydata())[-1])
    columns = 1 if len(ordered) <= 3 else 2
    axis.legend(
        ordered,
        [str(line.get_label()) for line in ordered],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=columns,
        fontsize=8,
    )


def draw_ablations(result: Result) -> Figure:
    """By how much each variant is better or worse than the recipe, at equal wall-clock.

    A bar is the mean over the seeds, a dot one seed; each seed is compared with the recipe's run
    of the same seed.
    """
    base = {r["seed"]: r["loss"] for r in result["runs"] if r["variant"] == BASELINE}
    differences: dict[str, list[float]] = {}
    for run in result["runs"]:
        if run["variant"] != BASELINE and run["seed"] in base:
            difference = run["loss"] - base[run["seed"]]
            differences.setdefault(run["variant"], []).append(difference)
    groups = {g: [v for v in variants if v in differences] for g, variants in GROUPS.items()}
    shown = [(group, variant) for group, variants in groups.items() for variant in variants]
    figure, axis = plt.subplots(figsize=(7, 0.6 + 0.27 * len(shown)), layout="constrained")
    places = [place + list(groups).index(group) * 0.6 for place, (group, _) in enumerate(shown)]
    for place, (_, variant) in zip(places, shown, strict=True):
        values = differences[variant]
        color = COLORS[1] if mean(values) < 0 else "#B0B0B0"
        axis.barh(place, mean(values), color=color, height=0.72)
        axis.plot(values, [place] * len(values), "o", color="black", markersize=3.2, zorder=3)
    axis.set_yticks(places, [variant for _, variant in shown])
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(places[-1] + 0.7, -0.7)
    axis.axvline(0, color="black", linewidth=0.8)
    means = {place: mean(differences[name]) for place, (_, name) in zip(places, shown, strict=True)}
    _limit(axis, means)
    axis.set_xlabel(
        f"validation loss after {result['minutes']:g} minutes, minus that of the baseline "
        "(left is better; dots: seeds)"
    )
    return figure


def _limit(axis: Axes, means: Mapping[float, float]) -> None:
    """Keeps one very bad variant from squeezing all others; its bar says how long it is.

    Args:
        means: by the place of a bar.
    """
    ordered = sorted(abs(value) for value in means.values())
    limit = max(2.5 * ordered[int(0.8 * (len(ordered) - 1))], 0.02)
    lowest, highest = axis.get_xlim()
    axis.set_xlim(max(lowest, -limit), min(highest, limit))
    for place, value in means.items():
        if value > limit:
            axis.text(limit, place, f"{value:+.2f} ", ha="right", va="center", color="black")


def save(figure: Figure, name: str, folder: Path = IMAGES) -> None:
    """Writes NAME.svg and NAME.png, without a date, so that equal pictures are equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    print(f"written to {folder / name}.svg and .png")


def draw_all(results: Path = RESULTS, images: Path = IMAGES) -> list[str]:
    """Draws all pictures that there are results for; their names."""
    mpl.use("agg")
    systems = find_systems(results)
    on_characters = {n: r for n, r in systems.items() if r["corpus"] == "shakespeare"}
    ablations = find_result("ablations-wiki_en", results)
    drawn: list[str] = []
    with mpl.rc_context(cast(Any, STYLE)):
        if systems:
            save(draw_classics(systems), "classics", images)
            drawn.append("classics")
        if on_characters:
            save(draw_shakespeare(on_characters), "shakespeare", images)
            drawn.append("shakespeare")
        if ablations and len({run["variant"] for run in ablations["runs"]}) > 1:
            save(draw_ablations(ablations), "ablations", images)
            drawn.append("ablations")
    return drawn


if __name__ == "__main__":
    draw_all()
