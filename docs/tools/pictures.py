"""Drawing of the pictures of `specification.yaml`; each function has the name of a picture."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.common import Result
from docs.tools.table_values import BASELINE, BESIDE, list_tasks

# The colors of Okabe and Ito, which people with color blindness can tell apart; ours is the first.
OURS, *COLORS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#882255", "black",
)  # fmt: skip
_OURS = ("ours", "auto", "sprint", "hour", "shakespeare-longer")  # in names of results
STYLE = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#E6E6E6", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "legend.frameon": False, "svg.hashsalt": "maskwright", "svg.fonttype": "none",
}  # fmt: skip
Block = Mapping[str, Any]


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in our style, without a screen."""
    mpl.use("agg")
    with mpl.rc_context(cast(Any, STYLE)):
        yield


def draw(block: Block, results: Sequence[Result], folder: Path) -> None:
    """Write NAME.svg and NAME.png, without a date, so that equal pictures are equal files."""
    name = block["picture"]
    figure: Figure = globals()[f"draw_{name}"](block, *results)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
    plt.close(figure)


def _open(block: Block, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Open panels side by side, with the labels of the block."""
    size = block["size"]
    figure, axes = plt.subplots(1, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes[0]:
        axis.set_xlabel(block.get("x", ""))
    axes[0][0].set(ylabel=block.get("y", ""), title=block.get("title", ""))
    return figure, list(axes[0])


def _get_curve(points: Sequence[Mapping[str, float]]) -> tuple[list[float], list[float]]:
    """Return minutes and losses."""
    return [point["seconds"] / 60 for point in points], [point["loss"] for point in points]


def _draw_systems(axis: Axes, systems: Sequence[Result]) -> None:
    """Draw a curve for each system, a thick one for ours, and a legend, the best first."""
    colors, styles = iter(COLORS), iter(("-", "--", ":", "-.") * 2)
    for result in systems:
        title = result["title"].replace("`", "")
        is_ours = any(word in result["name"] for word in _OURS)
        axis.plot(
            *_get_curve(result["curve"]),
            color=OURS if is_ours else next(colors),
            linestyle=next(styles) if is_ours else "-",
            linewidth=2.4 if is_ours else 1.5,
            zorder=3 if is_ours else 2,
            label=title if "minutes" in title else f"{title}, {result['minutes']:g} minutes",
        )
    axis.set_xlim(left=0)


def _add_legend(axis: Axes) -> None:
    lines = sorted(axis.get_lines(), key=lambda line: np.asarray(line.get_ydata())[-1])
    labels = [str(line.get_label()) for line in lines]
    where: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    axis.legend(lines, labels, **where, ncols=1 if len(lines) <= 3 else 2, fontsize=8)


def draw_classics(block: Block, *systems: Result) -> Figure:
    """Draw validation loss against wall-clock, a panel for each corpus: losses compare in one."""
    titles = {
        "shakespeare": "Tiny Shakespeare, characters",
        "sentences": "90,000 sentences of Wikipedia",
        "wiki": "English Wikipedia, lowercased",
        "wiki-cased": "English Wikipedia, cased",
    }
    panels = {c: [result for result in systems if result["corpus"] == c] for c in titles}
    panels = {corpus: chosen for corpus, chosen in panels.items() if chosen}
    width, height = block["size"]
    figure, axes = _open({**block, "size": (width / 3 * len(panels), height)}, len(panels))
    for axis, (corpus, chosen) in zip(axes, panels.items(), strict=True):
        _draw_systems(axis, chosen)
        _add_legend(axis)
        axis.set_title(titles[corpus])
    return figure


def draw_shakespeare(block: Block, *systems: Result) -> Figure:
    """Draw rows of a constant length and rows that grow, scored on rows of the last length."""
    figure, [axis] = _open(block)
    _draw_systems(axis, systems)
    for line, result in zip(axis.get_lines(), systems, strict=True):
        scored = 32 if result["name"].endswith("-32") else 128
        line.set_label(f"{result['title']}, scored on rows of {scored}")
        line.set_linestyle("--" if scored == 32 else "-")
    _add_legend(axis)
    return figure


def draw_quality(block: Block, result: Result) -> Figure:
    """Draw validation loss against time: the peers' best rates; ours, a run for each budget."""
    figure, [axis] = _open(block)
    for (architecture, found), color in zip(result["answers"].items(), COLORS, strict=False):
        rate = f"{found['best_rate']:g}"
        curve = _get_curve(result["runs"][f"{architecture}-{rate}"]["curve"])
        axis.plot(*curve, color=color, label=f"Trainer, {architecture}, AdamW {rate}")
    ours = [run for name, run in result["runs"].items() if name.startswith("ours-")]
    curve = _get_curve(sorted(ours, key=lambda run: run["seconds"]))
    label = "ours, a run for each budget"
    axis.plot(*curve, "o-", color=OURS, linewidth=2.4, label=label)
    axis.set_xlim(left=0)
    axis.legend(fontsize=8)
    return figure


def draw_growth(block: Block, result: Result) -> Figure:
    """Draw seconds against size, and in proportion to the work of the largest."""
    labels = {
        "hidden_size": "width of 6 layers",
        "num_hidden_layers": "layers of width 256",
        "max_seq_length": "tokens a row",
        "text_megabytes": "megabytes of text",
    }
    figure, axes = _open(block, len(labels))
    for axis, (name, label) in zip(axes, labels.items(), strict=True):
        grown = result["grown"][name]
        per_work = grown["seconds"][-1] / grown["work"][-1]
        linear = [work * per_work for work in grown["work"]]
        axis.loglog(grown["sizes"], linear, "--", color="#7F7F7F", label="as the work grows")
        axis.loglog(grown["sizes"], grown["seconds"], "o-", color=OURS, label="measured")
        axis.set_xticks(grown["sizes"], [str(size) for size in grown["sizes"]], minor=False)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        kind = "prepare" if name == "text_megabytes" else "a step"
        axis.set(xlabel=label, title=f"{kind}: slope {grown['slope']:.2f}")
    axes[0].legend(fontsize=8)
    return figure


def draw_finetuning(block: Block, result: Result) -> Figure:
    """Draw a group of bars for each task; lines are deviations over the runs."""
    figure, [axis] = _open(block)
    tasks = list(list_tasks(result))
    beside = [kind for kind in BESIDE if any(task[kind][0] is not None for task in tasks)]
    kinds = {kind: kind.replace("majority", "most frequent answer") for kind in beside}
    width = 0.8 / len(kinds)
    colors = [*COLORS[: len(kinds) - 1], OURS]
    for number, ((kind, label), color) in enumerate(zip(kinds.items(), colors, strict=True)):
        offset = (number - (len(kinds) - 1) / 2) * width
        means, deviations = zip(
            *((m or 0.0, d or 0.0) for m, d in (t[kind] for t in tasks)), strict=True
        )
        positions = [task + offset for task in range(len(tasks))]
        axis.bar(
            positions, means, width, yerr=deviations, label=label, color=color, ecolor="#333333"
        )
    axis.set_xticks(range(len(tasks)), [f"{t['name']}\n{t['deciding_metric']}" for t in tasks])
    axis.grid(axis="x", visible=False)
    axis.legend(ncols=len(kinds), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def draw_ablations(block: Block, result: Result) -> Figure:
    """Draw how much better or worse each variant is than the baseline, at equal wall-clock.

    A bar is the mean over the seeds, a dot one seed; each seed is compared with the baseline's run
    of the same seed.
    """
    base = {r["seed"]: r["loss"] for r in result["runs"] if r["variant"] == BASELINE}
    values: dict[str, list[float]] = {}
    for run in result["runs"]:
        if run["variant"] != BASELINE and run["seed"] in base:
            values.setdefault(run["variant"], []).append(run["loss"] - base[run["seed"]])
    groups = [[v for v in variants if v in values] for variants in block["groups"].values()]
    shown = [(gap, variant) for gap, variants in enumerate(groups) for variant in variants]
    heights = {variant: n + gap * 0.6 for n, (gap, variant) in enumerate(shown)}
    figure, [axis] = _open({"size": (7, 0.6 + 0.27 * len(shown))})
    for variant, at in heights.items():
        average = mean(values[variant])
        axis.barh(at, average, color=COLORS[1] if average < 0 else "#B0B0B0", height=0.72)
        axis.plot(values[variant], [at] * len(values[variant]), "o", color="black", markersize=3.2,
                  zorder=3)  # fmt: skip
    axis.set_yticks(list(heights.values()), list(heights))
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(max(heights.values()) + 0.7, -0.7)
    axis.axvline(0, color="black", linewidth=0.8)
    _limit(axis, {at: mean(values[variant]) for variant, at in heights.items()})
    axis.set_xlabel(block["x"].format(**result))
    return figure


def _limit(axis: Axes, means: Mapping[float, float]) -> None:
    """Keep one very bad variant from squeezing all others; its bar has its length as text."""
    ordered = sorted(map(abs, means.values()))
    limit = max(2.5 * ordered[int(0.8 * (len(ordered) - 1))], 0.02)
    lowest, highest = axis.get_xlim()
    axis.set_xlim(max(lowest, -limit), min(highest, limit))
    for at, value in means.items():
        if value > limit:
            axis.text(limit, at, f"{value:+.2f} ", ha="right", va="center", color="black")
