"""Results of suites as tables on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from maskwright.evaluation.scores import Score, SuiteResult
from maskwright.wording import count_noun


def print_results(model: dict[str, Any], results: Sequence[SuiteResult], paths: list[Path]) -> None:
    """A table for each suite, and where the results were written."""
    console = Console(highlight=False, soft_wrap=True)
    size = f"{model['num_parameters']:,} parameters"
    console.print(f"[bold]{escape(str(model['name']))}[/bold]  {size}  {model['sha256'][:12]}")
    for result in results:
        console.print()
        fast = "  (fast: a part of it)" if result.settings.get("fast") else ""
        console.print(f"[bold]{result.suite}[/bold]  {escape(str(result.data['name']))}{fast}")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("score", min_width=max(len(score.name) for score in result.scores))
        for title in ("value", "95 % interval", "no learning", "of"):
            table.add_column(title, justify="right")
        for score in result.scores:
            table.add_row(*describe_score(score))
        console.print(table)
        if left_out := result.data.get("num_left_out"):
            verb = "is" if left_out == 1 else "are"
            console.print(
                f"{count_noun(left_out, 'sentence')} {verb} longer than the model and left out"
            )
    for path in paths:
        console.print(f"\nwritten to {escape(str(path))}")


def describe_score(score: Score) -> tuple[str, str, str, str, str]:
    """Name, value, interval, baseline and number of samples as they are shown."""
    interval = ""
    if score.low is not None and score.high is not None:
        interval = f"{show_number(score.low)} to {show_number(score.high)}"
    baseline = "" if score.baseline is None else show_number(score.baseline)
    return (
        escape(score.name),
        show_number(score.value),
        interval,
        baseline,
        f"{score.num_samples:,}",
    )


def show_number(value: float) -> str:
    """Four digits that matter: 0.2518, 4.910, 135.6."""
    return (
        f"{value:.4f}"
        if abs(value) < 1
        else f"{value:.3f}"
        if abs(value) < 100
        else f"{value:,.1f}"
    )
