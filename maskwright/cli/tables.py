"""Tables on the terminal."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from maskwright.console import Console


def make_console() -> Console:
    """Return a console that neither highlights numbers nor wraps lines."""
    return Console(highlight=False, soft_wrap=True)


def print_table(
    console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]], *, num_names: int = 1
) -> None:
    """Print rows below their titles; columns after the first `num_names` are aligned right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(titles):
        width = max([len(title), *(len(row[column]) for row in rows)])
        side = "right" if column >= num_names else "left"
        table.add_column(escape(title), justify=side, min_width=width)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def show_number(value: float | None) -> str:
    """Return four significant digits, as in 0.2518, 4.910, 135.6; None is a number out of range."""
    if value is None:
        return "not finite"
    digits = 4 if abs(value) < 1 else 3 if abs(value) < 100 else 1
    return f"{value:,.{digits}f}"
