"""The pictures of docs/speed.md, from the newest result files.

    python -m benchmarks.speed_plots

One whose result file does not exist yet is left out.
"""

from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.common import RESULTS, Result, find_result
from benchmarks.plots import COLORS, IMAGES, OURS, STYLE, save

_PANELS = {
    "hidden_size": "width of 6 layers",
    "num_hidden_layers": "layers of width 256",
    "max_seq_length": "tokens a row",
    "text_megabytes": "megabytes of text",
}


def draw_growth(result: Result) -> Figure:
    """Seconds against size, and what they would be in proportion to the work of the largest."""
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(13, 3.4), layout="constrained")
    for axis, (name, label) in zip(axes, _PANELS.items(), strict=True):
        grown = result["grown"][name]
        per_work = grown["seconds"][-1] / grown["work"][-1]
        linear = [work * per_work for work in grown["work"]]
        axis.loglog(grown["sizes"], linear, "--", color="#7F7F7F", label="as the work grows")
        axis.loglog(grown["sizes"], grown["seconds"], "o-", color=OURS, label="measured")
        axis.set_xticks(grown["sizes"], [str(size) for size in grown["sizes"]], minor=False)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_xlabel(label)
        kind = "prepare" if name == "text_megabytes" else "a step"
        axis.set_title(f"{kind}: slope {grown['slope']:.2f}")
    axes[0].set_ylabel("seconds")
    axes[0].legend(fontsize=8)
    return figure


def draw_quality(result: Result) -> Figure:
    """Validation loss against time: the peers' best rates; ours, a run for each budget."""
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    colors = iter(COLORS)
    for architecture, found in result["answers"].items():
        run = result["runs"][f"{architecture}-{found['best_rate']:g}"]
        minutes = [point["seconds"] / 60 for point in run["curve"]]
        losses = [point["loss"] for point in run["curve"]]
        label = f"Trainer, {architecture}, AdamW {found['best_rate']:g}"
        axis.plot(minutes, losses, color=next(colors), label=label)
    ours = [run for name, run in result["runs"].items() if name.startswith("ours-")]
    points = sorted((run["seconds"] / 60, run["loss"]) for run in ours)
    label = "ours (sprint), a run for each budget"
    axis.plot(*zip(*points, strict=True), "o-", color=OURS, linewidth=2.4, label=label)
    axis.set_xlim(left=0)
    axis.set_xlabel("minutes: ours by the wall clock, the peers' while they computed")
    axis.set_ylabel("validation loss (nats a hidden token)")
    axis.legend(fontsize=8)
    return figure


def draw_all(results: Path = RESULTS, images: Path = IMAGES) -> list[str]:
    """Draws all pictures that there are results for; their names."""
    mpl.use("agg")
    pictures = {"growth": ("growth", draw_growth), "quality": ("time-to-quality", draw_quality)}
    drawn: list[str] = []
    with mpl.rc_context(cast(Any, STYLE)):
        for name, (benchmark, draw) in pictures.items():
            result = find_result(benchmark, results)
            if result is not None:
                save(draw(result), name, images)
                drawn.append(name)
    return drawn


if __name__ == "__main__":
    draw_all()
