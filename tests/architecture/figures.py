"""The figures of the plan, measured on the code as it is::

python -m tests.architecture.figures           # a table
python -m tests.architecture.figures --files   # and the files that are counted
    python -m tests.architecture.figures --journey # the files that two steps run, as JSON
"""

import argparse
import ast
import contextlib
import importlib
import io
import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

from tests.architecture.sources import ROOT, Source, imported_names, imports_by_name, read_sources

PACKAGE = ROOT / "maskwright"
SOURCES = read_sources("maskwright")
# Replaced-token detection is the objective that the plan follows.
OBJECTIVE = re.compile(r"\b(rtd|RTD)\b|[Rr]eplaced_?[Tt]oken|[Dd]iscriminator")
BUDGET = re.compile(r"\bmax_minutes\b")
LATE_IMPORT = re.compile(r"^\s+(from|import) ", re.MULTILINE)
UNTYPED_RECORD = re.compile(r"dict\[str, Any\]")
# Ends the journey: with its second call a line of text has become a gradient twice.
LAST_CALL, LAST_FILE, NUM_STEPS = "apply_gradients", "train/step.py", 2
# What the journey leaves out: the command line, run directories, messages and what is validated.
ROOMS_ON_THE_WAY = {
    *("corpus", "selection", "tokenizer", "shards", "preparation"),
    *("data", "model", "objectives", "optim", "distributed", "train"),
}
TEXT = [
    "The glowworm larvae are black and feed on snails.",
    "The beetles live in the wood, and so do the larvae of the beetles.",
    "The birds are quick and feed on beetles and seeds.",
    "The owls of the wood live on mice and birds.",
]


@dataclass(frozen=True)
class Figure:
    """One figure, with the files or places that it counts, if there are any to name."""

    value: float
    places: tuple[str, ...] = ()


def measure(executed: Iterable[str]) -> dict[str, Figure]:
    """Return all figures by name, given the files that two steps run."""
    executed = list(executed)
    untyped = [place for source in SOURCES for place in untyped_functions(source.tree, source.name)]
    num_functions = sum(len(list(functions_of(source.tree))) for source in SOURCES)
    circles = find_circles(import_graph(SOURCES))
    return {
        "package lines": Figure(count_lines(SOURCES)),
        "package files": Figure(len(SOURCES)),
        "benchmark lines": Figure(count_lines(read_sources("benchmarks"))),
        "files that pretrain runs": listed(executed),
        "files from text to gradient": listed(filter(is_on_the_way, executed)),
        "files that name max_minutes": listed(files_that_name(BUDGET)),
        "files that name replaced tokens": listed(files_that_name(OBJECTIVE)),
        "late own imports": listed(late_own_imports()),
        "import circles": listed(" ".join(circle) for circle in circles),
        "typed functions in %": Figure(100 * (1 - len(untyped) / num_functions), tuple(untyped)),
        "dict[str, Any]": Figure(sum(len(UNTYPED_RECORD.findall(s.text)) for s in SOURCES)),
    }


def listed(places: Iterable[str]) -> Figure:
    """Return the number of places, as a figure that names them."""
    found = tuple(sorted(places))
    return Figure(len(found), found)


def count_lines(sources: Iterable[Source]) -> int:
    return sum(len(source.text.splitlines()) for source in sources)


def files_that_name(pattern: re.Pattern[str]) -> Iterator[str]:
    return (source.name for source in SOURCES if pattern.search(source.text))


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions and methods, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def untyped_functions(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the functions that leave an argument or the returned value without a type."""
    for function in functions_of(tree):
        own = function.args
        every = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
        is_typed = all(
            argument is None or argument.annotation or argument.arg in ("self", "cls")
            for argument in every
        )
        if not is_typed or function.returns is None:
            yield f"{name}:{function.lineno} {function.name}"


def late_own_imports() -> Iterator[str]:
    """Yield imports of our own modules inside functions.

    The lazy table of ``maskwright/__init__.py`` imports by name and is none of them.
    """
    for source in filter(lambda source: LATE_IMPORT.search(source.text), SOURCES):
        for function in functions_of(source.tree):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = imported_names(ast.Module([node], []))
                    if any(name.partition(".")[0] == "maskwright" for name in names):
                        yield f"{source.name}:{node.lineno}"


def import_graph(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return the modules that each module imports, at its top, late, or by name."""
    sources = list(sources)
    modules = {source.module for source in sources}
    graph: dict[str, set[str]] = {}
    for source in sources:
        by_name = (name for _, names in imports_by_name(source) for name in names)
        named = [*imported_names(source.tree), *by_name]
        # ``a.b.c`` is a module, or a name in the module ``a.b``.
        homes = (name if name in modules else name.rpartition(".")[0] for name in named)
        graph[source.module] = {home for home in homes if home in modules}
    # It imports what it offers when a name is used, and by name.
    graph["maskwright"] = set()
    return graph


def find_circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module."""
    reached = {module: _reach(graph, module) for module in graph}
    circles = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return sorted(list(circle) for circle in circles)


def _reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found


def is_on_the_way(file: str) -> bool:
    """Return True if a file is in a room that turns text into a gradient."""
    return file.split("/")[1] in ROOMS_ON_THE_WAY


def files_of_two_steps() -> set[str]:
    """Return the files of the package whose functions run in `pretrain` on four lines of text.

    From the command line to the end of the second step; imports do not count.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("garden.txt").write_text("\n".join(TEXT * 30), encoding="utf-8")
        command = ["pretrain", "garden.txt", "--name", "a", "--tokenizer.vocab_size", "128"]
        command += ["--model.hidden_size", "32", "--model.num_hidden_layers", "1"]
        command += ["--train.max_steps", str(NUM_STEPS), "--train.device", "cpu"]
        command += ["--train.compile", "off", "--corpus.valid_fraction", "0.2"]
        # Recorded, this import would take seconds.
        importlib.import_module("maskwright.pretraining.pretrain")
        from maskwright.cli.main import main

        recorder = Recorder()
        silence = io.StringIO()
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            recorder.run(lambda: main(command))
        assert recorder.num_steps == NUM_STEPS, f"no {LAST_CALL} was called: {silence.getvalue()}"
    return {str(Path(name).relative_to(ROOT)) for name in recorder.files}


class Arrived(BaseException):
    """The last call has returned."""


class Recorder:
    """Files of the package whose functions are called, in any thread, up to `LAST_CALL`."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.num_steps = 0
        self._importing = threading.local()

    def run(self, job: Callable[[], int]) -> None:
        """Run `job` until the last call and record what it calls."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        try:
            with contextlib.suppress(Arrived):
                job()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event not in ("call", "return"):
            return
        code, importing = frame.f_code, self._importing
        if code.co_name == "<module>":
            depth = getattr(importing, "depth", 0)
            importing.depth = depth + (1 if event == "call" else -1)
        elif code.co_filename.startswith(str(PACKAGE)) and self.num_steps < NUM_STEPS:
            # The body of a class runs too, without being a function.
            if not getattr(importing, "depth", 0) and code.co_flags & CO_OPTIMIZED:
                self.files.add(code.co_filename)
            if event == "return" and code.co_name == LAST_CALL:
                self.num_steps += code.co_filename.endswith(LAST_FILE)
                if self.num_steps == NUM_STEPS:
                    raise Arrived


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description="Print the figures of the code.")
    parser.add_argument("--files", action="store_true", help="name what is counted")
    parser.add_argument("--journey", action="store_true", help="print the files of two steps")
    arguments = parser.parse_args()
    executed = files_of_two_steps()
    if arguments.journey:
        print(json.dumps(sorted(executed)))
        return
    for name, figure in measure(executed).items():
        value = f"{figure.value:,.2f}" if figure.value % 1 else f"{figure.value:,.0f}"
        print(f"{value:>10}  {name}")
        if arguments.files:
            print("".join(f"{'':12}{place}\n" for place in figure.places), end="")


if __name__ == "__main__":
    main()
