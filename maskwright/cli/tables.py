"""Results of suites as tables on the terminal."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from maskwright.console import Console
from maskwright.evaluation.scores import HEADLINES, Score, SuiteResult
from maskwright.formatting import count_noun


def print_results(
    model: dict[str, Any], results: Sequence[SuiteResult], paths: list[Path], *, in_detail: bool
) -> None:
    """What the suites found, and where the results were written.

    Args:
        in_detail: a table for each suite with all of its scores, and not one for all with those
            that a model is known by.
    """
    console = Console(highlight=False, soft_wrap=True)
    size = f"{model['num_parameters']:,} parameters"
    console.print(f"[bold]{escape(str(model['name']))}[/bold]  {size}  {model['sha256'][:12]}\n")
    if in_detail:
        for result in results:
            fast = "  (fast: of much text a part)" if result.settings.get("fast") else ""
            console.print(f"[bold]{result.suite}[/bold]  {escape(str(result.data['name']))}{fast}")
            console.print(_tabulate([describe_score(score) for score in result.scores]))
            console.print()
    else:
        _print_summary(results, console)
    for result in results:
        if left_out := result.data.get("num_left_out"):
            verb = "is" if left_out == 1 else "are"
            console.print(
                f"{count_noun(left_out, 'sentence')} {verb} longer than the model and left out"
            )
    for path in paths:
        console.print(f"all scores are in {escape(str(path))}")


def _print_summary(results: Sequence[SuiteResult], console: Console) -> None:
    named = {
        f"{result.suite}/{score.name.removeprefix(f'{result.suite}/')}": score
        for result in results
        for score in result.scores
    }
    rows = [(name, *describe_score(named[name])[1:]) for name in HEADLINES if name in named]
    console.print(_tabulate(rows))
    names = dict.fromkeys(str(result.data["name"]) for result in results)
    fast = " (fast: of much text a part)" if results[0].settings.get("fast") else ""
    console.print(f"on {escape(' and '.join(names))}{fast}")
    console.print(f"--details shows {len(named) - len(rows):,} more")


def _tabulate(rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("score", min_width=max((len(row[0]) for row in rows), default=0))
    for title in ("value", "95 % interval", "no learning", "of"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


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


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[str]], *, num_names: int = 1) -> None:
    """Print a table; the columns after the first `num_names` are numbers, aligned to the right."""
    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(titles):
        is_number = number >= num_names
        table.add_column(title, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        table.add_row(*map(escape, row))
    Console(highlight=False, soft_wrap=True).print(table)
