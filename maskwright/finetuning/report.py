"""``report.html`` of a fine-tuning: scores beside baselines, classes, confusions and mistakes.

What a fine-tuning leaves for its user: scores by class, predictions and a page.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from maskwright.config import read_yaml
from maskwright.console import Console
from maskwright.files import write_text
from maskwright.finetuning.answers import Answers, list_texts, show_answer, write_predictions
from maskwright.finetuning.spans import OUTSIDE
from maskwright.logs import Record, read_metrics
from maskwright.report.charts import COLORS, FAINT, render
from maskwright.report.templates import fill_template
from maskwright.runs.run_directory import CONFIG_NAME, METRICS_NAME, REPORT_NAME

_MOST_CLASSES = 20  # of a matrix that can be read
_MOST_MISTAKES, _MOST_CONFUSIONS = 30, 20
_LONGEST_TEXT = 600
_TITLES = {"majority": "most frequent answer", "bag of words": "bag of words"}


def render_finetuning(
    name: str,
    results: Mapping[str, Any],
    records: Sequence[Record],
    answers: Answers,
    config: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> str:
    """Return the page as HTML.

    Args:
        name: of the run.
        results, records: its results.json and metrics.jsonl.
        answers: of the saved model to the test examples, or else to the validation examples.
        notes: what the scores say against the model.
    """
    judged = results.get("test", {"examples": results["valid_examples"], **results})
    has_plots = importlib.util.find_spec("matplotlib") is not None
    matrix = _shade(judged.get("confusion_matrix", {}), list(results["labels"]))
    return fill_template(
        "finetuning.html.j2",
        title=name,
        facts=list(_list_facts(results, judged)),
        columns=_name_columns(judged),
        scores=list(_list_scores(judged)),
        notes=notes,
        judged="test" if "test" in results else "validation",
        classes=_rate(judged.get("classes", {})),
        matrix=matrix if len(matrix) <= _MOST_CLASSES else [],
        confusions=_list_confusions(judged.get("confusion_matrix", {})),
        mistakes=list(_list_mistakes(answers)),
        mistakes_kind=answers.labels.task,
        curves=_draw_curves(records, results) if has_plots else None,
        config=[(key, str(value)) for key, value in config.items()],
    )


def _list_facts(results: Mapping[str, Any], judged: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    metric = results["deciding_metric"]
    seeds, labels = len(results["runs"]), results["labels"]
    yield metric, _show_mean(judged["scores"][metric])
    yield "task", results["task"]
    if results["task"] != "regression":
        yield "labels", f"{len(labels):,}"
    extent = f"{results['train_examples']:,} to train on, {results['valid_examples']:,} to choose"
    tested = f", {judged['examples']:,} to test" if "test" in results else ""
    yield "examples", f"{extent} the weights{tested}"
    yield "runs", f"{seeds} (saved: seed {results['saved_seed']})"
    seconds = sum(run["seconds"] for run in results["runs"])
    yield "minutes of training", f"{seconds / 60:.1f}"


def _name_columns(judged: Mapping[str, Any]) -> list[str]:
    models = ["random encoder"] * ("random_encoder" in judged) + ["this model"]
    return [*(_TITLES.get(str(name), str(name)) for name in judged["baselines"]), *models]


def _list_scores(judged: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for metric in judged["baselines"]["majority"]:
        if "/" in metric:  # of one kind of entity, in the table of classes
            continue
        row = [f"{scores[metric]:.4f}" for scores in judged["baselines"].values()]
        if "random_encoder" in judged:
            row.append(_show_mean(judged["random_encoder"][metric]))
        yield metric, [*row, _show_mean(judged["scores"][metric])]


def _show_mean(found: Mapping[str, float | None]) -> str:
    deviation = found["deviation"]
    return f"{found['mean']:.4f}" + (f" ± {deviation:.4f}" if deviation is not None else "")


def _rate(classes: Mapping[str, Mapping[str, float]]) -> list[tuple[str, list[str]]]:
    return [
        (
            name,
            [
                *(f"{scores[each]:.3f}" for each in ("precision", "recall", "f1")),
                f"{scores['examples']:,}",
            ],
        )
        for name, scores in classes.items()
    ]


def _shade(
    confusions: Mapping[str, Mapping[str, int]], labels: Sequence[str]
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Of each label the count of each answer, and its share of the row in percent."""
    rows: list[tuple[str, list[tuple[int, int]]]] = []
    for label in labels if confusions else ():
        counts = confusions.get(label, {})
        total = sum(counts.values()) or 1
        row = [(counts.get(name, 0), round(100 * counts.get(name, 0) / total)) for name in labels]
        rows.append((label, row))
    return rows


def _list_confusions(confusions: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    """Right label, answer and how often, of the most frequent wrong answers."""
    found = [
        (true, answer, count)
        for true, counts in confusions.items()
        for answer, count in counts.items()
        if answer != true
    ]
    return sorted(found, key=lambda each: -each[2])[:_MOST_CONFUSIONS]


def _list_mistakes(answers: Answers) -> Iterator[dict[str, Any]]:
    """The wrong answers that the model is surest of; of numbers those that are farthest off."""
    all_of_them = enumerate(list_texts(answers))
    wrong = [(number, each) for number, each in all_of_them if each[1] != each[2]]
    wrong.sort(key=lambda numbered: -_measure(answers.labels.task, *numbered[1][1:]))
    for number, (texts, true, found, probability) in wrong[:_MOST_MISTAKES]:
        if answers.labels.task == "tokens":
            row: Any = answers.rows[number]
            yield {"parts": list(_mark_tags(row.words, true, found))}
            continue
        yield {
            "texts": [_shorten(text) for text in texts],
            "true": show_answer(true) or "none",
            "found": show_answer(found) or "none",
            "probability": "" if probability is None else f"{probability:.3f}",
        }


def _measure(task: str, true: Any, found: Any, probability: float | None) -> float:
    if task == "regression":
        return abs(true - found)
    if task == "tokens":
        return sum(one != other for one, other in zip(true, found, strict=True))
    if task == "multilabel":
        return len({*true} ^ {*found})
    return probability or 0.0


def _mark_tags(
    words: Sequence[str], true: Sequence[str], found: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Each word with its class, ``right`` or ``wrong`` where there is a tag, and what was said."""
    for word, tag, answer in zip(words, true, found, strict=True):
        if tag == answer:
            yield ("right" if tag != OUTSIDE else "", word, "")
        else:
            yield "wrong", word, f"{answer}, not {tag}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} …"


def _draw_curves(records: Sequence[Record], results: Mapping[str, Any]) -> str:
    """The deciding metric and both losses by epoch, a line for each seed."""
    metric = results["deciding_metric"]
    panels = ((metric, f"{metric}, validation"), ("loss", "training loss"))
    panels = (*panels, ("valid_loss", "validation loss"))
    keys = dict.fromkeys((str(r.get("run", "")), int(r["seed"])) for r in records)

    def draw(figure: Any) -> None:
        grid = figure.subplots(1, 3)
        for axes, (name, title) in zip(grid, panels, strict=True):
            for run, seed in keys:
                mine = [r for r in records if (str(r.get("run", "")), r["seed"]) == (run, seed)]
                known = [(r["epoch"], r[name]) for r in mine if isinstance(r[name], int | float)]
                color = FAINT if run else COLORS[seed % len(COLORS)]
                label = "random encoder" if run else f"seed {seed}"
                style = "--" if run else "-"
                axes.plot(*zip(*known, strict=True), style, color=color, linewidth=1.4, label=label)
            if name == metric:
                for baseline, scores in results["baselines"].items():
                    axes.axhline(scores[metric], color=FAINT, linewidth=1, linestyle=(0, (2, 3)))
                    axes.annotate(
                        _TITLES.get(baseline, baseline),
                        (1, scores[metric]),
                        xycoords=("axes fraction", "data"),
                        ha="right",
                        va="bottom",
                        fontsize=8,
                        color=FAINT,
                    )
            axes.set_title(title, loc="left", fontsize=9.5)
            axes.set_xlabel("epochs")
            axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        handles = dict(zip(*reversed(grid[0].get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=6, frameon=False)

    return render(draw, 11, 3.4, f"{metric} and losses by epoch")


_SHOWN_CLASSES = 20


def add_answers(results: dict[str, Any], answers: Sequence[Answers], saved_seed: int) -> None:
    """Add scores by class and confusions of the saved model to ``results.json``."""
    results["saved_seed"] = saved_seed
    for found, each in zip((results, results.get("test", {})), answers, strict=False):
        if classes := each.score_classes():
            found["classes"] = classes
        if confusions := each.count_confusions():
            found["confusion_matrix"] = confusions


def write_answers(out: Path, answers: Sequence[Answers], console: Console) -> None:
    """Write the predictions of the test examples, or where there are none the validation's."""
    path = write_predictions(out, answers[-1])
    what = "sentences" if answers[-1].labels.task == "tokens" else "examples"
    console.print(f"Predictions for {len(answers[-1]):,} {what}: {path}", markup=False)


def write_page(
    out: Path,
    results: Mapping[str, Any],
    answers: Sequence[Answers],
    notes: Sequence[str],
    console: Console,
) -> None:
    """Write the page about a run, which is whole without it, whatever goes wrong with the page."""
    from maskwright.finetuning.report import render_finetuning

    try:
        records, config = read_metrics(out / METRICS_NAME), read_yaml(out / CONFIG_NAME)
        name = out.absolute().name
        page = render_finetuning(name, results, records, answers[-1], config, notes)
        write_text(out / REPORT_NAME, page)
    except Exception as error:
        console.print(f"no {REPORT_NAME}: {error}", markup=False)
        return
    console.print(f"How it went: {out / REPORT_NAME}", markup=False)


def show_classes(results: Mapping[str, Any], console: Console) -> None:
    """Print a row for each class of the judged examples; of many classes those that occur most."""
    judged = results.get("test", results)
    classes = judged.get("classes", {})
    most = sorted(classes, key=lambda name: -classes[name]["examples"])[:_SHOWN_CLASSES]
    if len(classes) < 2:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in ("precision", "recall", "f1", "examples"):
        table.add_column(title, justify="right")
    for name in (name for name in classes if name in most):
        scores = classes[name]
        shown = [f"{scores[score]:.4f}" for score in ("precision", "recall", "f1")]
        table.add_row(Text(name), *shown, f"{scores['examples']:,}")
    console.print("\nby class, the saved model:")
    console.print(table)
    if len(classes) > len(most):
        console.print(f"and {len(classes) - len(most):,} more classes in results.json")
