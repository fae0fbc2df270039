"""``maskwright compare``: runs side by side, with intervals of their differences, and plots."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from maskwright.cli.evaluation_flags import add_text_flags, check_text_flags
from maskwright.cli.flags import Parser
from maskwright.console import Console, tell
from maskwright.files import check_new_folder, write_json
from maskwright.formatting import shorten_names
from maskwright.report.charts import Curve, check_matplotlib, plot_curves

if TYPE_CHECKING:
    from maskwright.evaluation.compare import Compared, Difference

_EPILOG = """examples:
  maskwright compare runs/A runs/B
  maskwright compare runs/A runs/B runs/C --out comparison
  maskwright compare runs/A hf:google-bert/bert-base-uncased --data novel.txt

All models are scored on the same pinned masks; the differences from the first one come with 95 %
intervals of a bootstrap over rows that draws the same rows for both. Models of different tokenizers
are compared by bits per character, on text files: give --data. --out gets comparison.json, and
curves.png and curves.svg: loss and masked accuracy against steps, tokens and minutes.
"""


def build_parser() -> Parser:
    """The command line of ``maskwright compare``."""
    parser = Parser("compare", "Put runs side by side.", _EPILOG)
    parser.add_argument("runs", nargs="+", help="run directories, model folders, or hf:NAME")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write comparison and plots there")
    rows = "the shortest of the runs"
    add_text_flags(parser, "the data of the first run", rows, "an eighth of the text")
    return parser


def compare(
    runs: Sequence[str | Path],
    *,
    data: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    fast: bool = False,
    seq_length: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Score models on the same masks; the Python twin of ``maskwright compare``::

        found = compare(["runs/A", "runs/B"])
        [difference] = found["differences_from_first"]

    Args:
        runs: run directories, model folders, or ``hf:NAME``: two or more.
        data: a prepared folder or its URL, or text files; default: the data of the first run.
        out: a folder to write ``comparison.json`` and plots to.
        fast: scores an eighth of the text.
        seq_length: tokens of a row; default: the shortest of the runs.
        device: where to compute, such as ``cpu`` or ``cuda``; default: a GPU if there is one.

    Returns:
        ``{"models": [{"name", "mlm", "last_validation", …}, …], "differences_from_first":
        [{"name", "is_paired", "scores": [{"name", "value", "low", "high", …}, …]}, …], …}``.

    Raises:
        MaskwrightError: anything wrong with the input, as one line.
    """
    options = {"data": data, "out": out, "fast": fast, "seq_length": seq_length, "device": device}
    return _run(build_parser().fill({}, runs=runs, **options), Console(quiet=True))


def main(argv: Sequence[str]) -> int:
    _run(build_parser().parse(argv), Console(highlight=False, soft_wrap=True))
    return 0


def _run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    check_text_flags(arguments)
    if arguments.out is not None:
        check_matplotlib()
        check_new_folder(arguments.out)
        arguments.out.mkdir(parents=True, exist_ok=True)
    from maskwright.evaluation.compare import (
        compare_models,
        describe_comparison,
        describe_task,
        find_differences,
        tabulate,
    )
    from maskwright.evaluation.held_out_text import describe_cut

    compared = compare_models(
        arguments.runs,
        arguments.data,
        arguments.seq_length,
        arguments.device,
        is_fast=arguments.fast,
        report=tell,
        progress=tell,
    )
    if line := describe_cut(compared[0].result.data):
        tell(line)
    differences, task = find_differences(compared), describe_task(compared)
    console.print(f"{escape(task)}\n")
    _print_lines(console, tabulate(compared))
    for difference in differences:
        _print_difference(console, difference, compared[0].name)
    described = describe_comparison(compared, differences)
    if arguments.out is not None:
        path = arguments.out / "comparison.json"
        write_json(path, described)
        for written in (path, *_plot(compared, arguments.out)):
            console.print(f"written to {escape(str(written))}")
    return described


def _print_lines(console: Console, lines: Sequence[tuple[str, ...]]) -> None:
    titles, *rest = lines
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, title in enumerate(titles):
        width = max(len(line[column]) for line in lines)
        table.add_column(title, justify="right" if column else "left", min_width=width)
    for line in rest:
        table.add_row(*map(escape, line))
    console.print(table)
    console.print()


def _print_difference(console: Console, difference: "Difference", first: str) -> None:
    how = "paired by row" if difference.is_paired else "not paired: other masks"
    console.print(f"[bold]{escape(difference.name)}[/bold] minus {escape(first)}  ({how})")
    lines = [("score", "difference", "95 % interval", "")]
    for score in difference.scores:
        interval, sure = "", ""
        if score.low is not None and score.high is not None:
            interval = f"{score.low:+.4f} to {score.high:+.4f}"
            sure = "" if score.low <= 0 <= score.high else "differs"
        lines.append((score.name, f"{score.value:+.4f}", interval, sure))
    _print_lines(console, lines)


def _plot(compared: "Sequence[Compared]", folder: Path) -> list[Path]:
    names = shorten_names([one.name for one in compared])
    curves = [
        Curve(name, one.validations)
        for name, one in zip(names, compared, strict=True)
        if one.validations
    ]
    if not curves:
        return []
    tokenizers = {one.facts["tokenizer_fingerprint"] for one in compared if one.validations}
    note = "Validations during training, on pinned masks at 15 %."
    if len(tokenizers) > 1:
        note += (
            " The runs have different tokenizers: losses and accuracies of tokens do not compare."
        )
    return plot_curves(curves, folder, note)
