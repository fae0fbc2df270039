"""A table of results with its captions: for a terminal, as HTML, Markdown and LaTeX alike."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from maskwright.formatting import escape_markdown
from maskwright.report.pages import fill_template

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≤": r"$\leq$",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\n": " ",
}


@dataclass(frozen=True)
class ResultTable:
    """Rows of text below their titles.

    Attributes:
        title: what the table shows.
        note: how it was made, beside the title.
        titles: of the columns; the first one is a name, all others are aligned right.
        below: how the table is to be read.
    """

    title: str
    note: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: str = ""

    def write_markdown(self) -> str:
        """Return the table as Markdown with its captions."""
        lines = [f"**{escape_markdown(self.title)}** {escape_markdown(self.note)}".strip(), ""]
        sides = ("---", *("---:" for _ in self.titles[1:]))
        for cells in (self.titles, sides, *self.rows):
            shown = cells if cells is sides else map(escape_markdown, cells)
            lines.append(f"| {' | '.join(shown)} |")
        return "\n".join([*lines, "", escape_markdown(self.below)]).rstrip() + "\n"

    def write_latex(self) -> str:
        r"""Return the table as LaTeX; it needs ``\usepackage{booktabs}``."""
        lines = [r"\begin{table}", r"\centering"]
        lines.append(rf"\begin{{tabular}}{{l{'r' * (len(self.titles) - 1)}}}")
        rows = [
            " & ".join(map(escape_latex, cells)) + r" \\" for cells in (self.titles, *self.rows)
        ]
        lines += [r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}"]
        caption = " ".join(filter(None, (f"{self.title} {self.note}".strip() + ".", self.below)))
        return "\n".join([*lines, rf"\caption{{{escape_latex(caption)}}}", r"\end{table}"]) + "\n"


def escape_latex(text: str) -> str:
    """Return LaTeX that prints `text`."""
    return re.sub(
        "|".join(map(re.escape, _LATEX)), lambda found: _LATEX[found[0]], text
    )  # one pass, so that what an escape adds is not escaped


def render_tables(
    title: str,
    tables: Sequence[ResultTable],
    charts: Sequence[tuple[str, str]] = (),
    lines: Sequence[str] = (),
) -> str:
    """Return a page with tables and charts as HTML.

    Args:
        title: of the page.
        tables: in their order.
        charts: the title of each and its SVG.
        lines: paragraphs at the top.
    """
    return fill_template("tables.html.j2", title=title, tables=tables, charts=charts, lines=lines)
