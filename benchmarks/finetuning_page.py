"""Writes the results of docs/finetune.md, table and picture, from the newest result files.

python -m benchmarks.finetuning_page
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.common import RESULTS, Result, find_result, put_section
from benchmarks.plots import COLORS, IMAGES, OURS, STYLE, save
from maskwright.finetuning.results import Summary, show_mean
from maskwright.formatting import count_noun

PAGE = Path(__file__).parents[1] / "docs" / "finetune.md"
# What stands beside our model, and where its scores are in the result of a task.
BESIDE = {
    "most frequent answer": ("baselines", "majority"),
    "bag of words": ("baselines", "bag of words"),
    "random encoder": ("random_encoder",),
}


def find_score(task: Result, *path: str) -> Summary:
    """Mean and deviation of the deciding metric, of a baseline or of runs."""
    scores: Any = task["test"]
    for key in path:
        scores = scores[key]
    found = scores[task["deciding_metric"]]
    if isinstance(found, Mapping):
        return {"mean": found["mean"], "deviation": found["deviation"]}
    return {"mean": found, "deviation": None}


def write_table(result: Result) -> list[str]:
    """A Markdown table, a row for each task."""
    lines = [
        f"| task | examples | metric | {' | '.join(BESIDE)} | our model | runs | minutes a run |",
        f"|---|--:|---|{'--:|' * (len(BESIDE) + 3)}",
    ]
    for name, task in result["tasks"].items():
        paths = (*BESIDE.values(), ("scores",))
        scores = " | ".join(show_mean(find_score(task, *path)) for path in paths)
        minutes, metric = task["minutes_a_seed"], task["deciding_metric"]
        examples = f"{task['train_examples']:,}"
        runs = len(task["runs"])
        lines.append(f"| {name} | {examples} | {metric} | {scores} | {runs} | {minutes:.1f} |")
    return lines


def draw_scores(result: Result) -> Figure:
    """A group of bars for each task; lines are deviations over the runs."""
    figure, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
    kinds = {**BESIDE, "our model": ("scores",)}
    width = 0.8 / len(kinds)
    colors = [*COLORS[: len(BESIDE)], OURS]
    for number, ((label, path), color) in enumerate(zip(kinds.items(), colors, strict=True)):
        found = [find_score(task, *path) for task in result["tasks"].values()]
        places = [task + (number - (len(kinds) - 1) / 2) * width for task in range(len(found))]
        means = [score["mean"] or 0.0 for score in found]
        deviations = [score["deviation"] or 0.0 for score in found]
        axis.bar(places, means, width, yerr=deviations, label=label, color=color, ecolor="#333333")
    labels = [f"{name}\n{task['deciding_metric']}" for name, task in result["tasks"].items()]
    axis.set_xticks(range(len(labels)), labels)
    axis.grid(axis="x", visible=False)
    axis.legend(ncols=len(kinds), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def write_section(results: Path = RESULTS) -> str:
    """The section as Markdown, without its markers."""
    result, speed = (find_result(name, results) for name in ("finetuning", "finetuning-speed"))
    if result is None:
        return "Nothing has been measured yet.\n"
    environment = result["environment"]
    folder = "../benchmarks/results"
    threads = count_noun(max(task["threads"] for task in result["tasks"].values()), "thread")
    lines = [
        f"{result['about']}; mean and deviation over runs of {threads} each of an "
        f"{environment['cpu']} ([file]({folder}/{result['file']})). Weights are chosen by a tenth "
        "of the training examples; these scores are of others, looked at once:\n",
        *write_table(result),
        "",
        "![Scores of the model beside baselines and a random encoder](images/finetuning.svg)",
    ]
    if speed:
        random, grouped = (
            f"{ratio['median']:.2f}x ({ratio['least']:.2f} to {ratio['most']:.2f})"
            for ratio in speed["ratios"].values()
        )
        lines += [
            "",
            f"Beside transformers' `Trainer` with the same weights and examples, {speed['model']} "
            f"trains {grouped} as fast when the peer, too, is told to put similar lengths into a "
            f"batch, and {random} as fast as its default, batches of any lengths "
            f"([file]({folder}/{speed['file']})).",
        ]
    return "\n".join(lines) + "\n"


def draw_picture(results: Path = RESULTS, images: Path = IMAGES) -> None:
    """The picture, if there is a result."""
    mpl.use("agg")
    result = find_result("finetuning", results)
    if result is not None:
        with mpl.rc_context(cast(Any, STYLE)):
            save(draw_scores(result), "finetuning", images)


if __name__ == "__main__":
    draw_picture()
    put_section(PAGE, write_section())
