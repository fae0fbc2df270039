"""What a fine-tuning leaves for its user: scores by class, predictions and a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from maskwright.commands.report import REPORT_NAME
from maskwright.commands.run_folder import CONFIG_NAME, METRICS_NAME
from maskwright.config import read_yaml
from maskwright.console import Console
from maskwright.files import write_text
from maskwright.finetune.answers import Answers, write_predictions
from maskwright.logs import read_metrics

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
    from maskwright.report.finetuning_page import render_finetuning

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
