"""Run the code of the tutorials, write what it prints into the pages, and write the notebooks.

    python -m docs.tools tutorials --run entities      # in the folder runs/tutorials
    python -m docs.tools tutorials                     # the notebooks of all pages

A tutorial is a page, ``docs/tutorials/NAME.md``. Its ``python`` blocks are cells, run one after the
other in one process; the ``text`` block with the title "Output" after a cell is what it printed.
As in IPython, ``!maskwright`` at the start of a line runs a command, and ``%%capture`` in the first
line of a cell hides what it prints. ``NAME.ipynb`` beside the page is the same as a notebook.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from maskwright.cli.main import main as run_command

PAGES = ROOT / "docs" / "tutorials"
_OUTPUT = '```text title="Output"'
_CELL = re.compile(
    rf"^```python\n(.*?)^```\n(?:\n{_OUTPUT}\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
_CAPTURE = "%%capture\n"
_COMMAND = re.compile(r"^!maskwright (.*)$", re.MULTILINE)


def run_page(page: str, parameters: dict[str, Any] | None = None) -> str:
    """Run all cells of a page in the working directory; return the page with what they printed.

    Args:
        parameters: values that replace those of the first cell, as for a shorter run.
    """
    names: dict[str, Any] = {"__name__": "__main__"}

    def run(found: re.Match[str]) -> str:
        printed = run_cell(found[1], names)
        names.update({name: value for name, value in (parameters or {}).items() if name in names})
        shown = f"\n{_OUTPUT}\n{printed.rstrip()}\n```\n" if printed.strip() else ""
        return f"```python\n{found[1]}```\n{shown}"

    return _CELL.sub(run, page)


def read_outputs(page: str) -> list[str]:
    """Return what each cell of a page printed, as the page has it."""
    return [found[2] or "" for found in _CELL.finditer(page)]


def run_cell(code: str, names: dict[str, Any]) -> str:
    """Run a cell as a notebook does; return its standard output and the value of its last line."""
    is_hidden = code.startswith(_CAPTURE)
    code = _COMMAND.sub(lambda found: f"_run({found[1]!r})", code.removeprefix(_CAPTURE))
    tree, names["_run"] = ast.parse(code), _run_line
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with (
        io.StringIO() as printed,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(io.StringIO()),  # progress
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of the text's own code, where a tutorial parses some
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            if value is not None:
                print(repr(value))
        lines = [] if is_hidden else printed.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _run_line(line: str) -> None:
    if run_command(shlex.split(line)) != 0:
        raise RuntimeError(f"maskwright {line} failed")


def write_notebook(page: str) -> str:
    """Return a page as a notebook, in Jupyter's format 4.4; the first cell has the parameters."""
    cells: list[dict[str, Any]] = []
    parts = _CELL.split(page)  # text, code, output, text, …
    for text, code, output in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        if text.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": _lines(text.strip())})
        if code:
            tags = [] if any(cell["cell_type"] == "code" for cell in cells) else ["parameters"]
            shown = [{"name": "stdout", "output_type": "stream", "text": _lines(output or "")}]
            cells.append(
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {"tags": tags} if tags else {},
                    "outputs": shown if output else [],
                    "source": _lines(code.strip()),
                }
            )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    return json.dumps({**notebook, "nbformat_minor": 4}, indent=1, ensure_ascii=False) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", nargs="*", default=[], metavar="NAME", help="pages to run")
    parser.add_argument("--folder", type=Path, default=Path("runs/tutorials"), help="where to run")


def main(arguments: argparse.Namespace) -> None:
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(arguments.folder)
    for name in arguments.run:
        path = PAGES / f"{name}.md"
        path.write_text(run_page(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{path} holds what its code printed", file=sys.stderr)
    for path in sorted(PAGES.glob("*.md")):
        notebook = write_notebook(path.read_text(encoding="utf-8"))
        path.with_suffix(".ipynb").write_text(notebook, encoding="utf-8")
