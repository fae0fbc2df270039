"""Drawing of the pictures of `specification.yaml`; each function has the name of a picture."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common import Result
from docs.tools.table_values import BESIDE, list_tasks

# The colors of Okabe and Ito, which people with color blindness can tell apart; ours is the first.
OURS, *COLORS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#882255", "black",
)  # fmt: skip
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
