"""Files and functions that fit a head, and no switched-off checks."""

import ast
import io
import re
import subprocess
import tokenize

from tests.architecture.sources import ROOT, Source, read_sources

MAX_FILE_LINES, MAX_FUNCTION_LINES = 500, 60
MAX_FILE_BYTES = 1 << 20
SOURCES = read_sources("maskwright", "examples", "benchmarks", "docs/tools", "tests")
SWITCHED_OFF = re.compile(r"#\s*(type:\s*ignore|pyright:\s*ignore|noqa|TODO|FIXME|XXX)\b")


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]


def comments_of(source: Source) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def test_files_are_short() -> None:
    lengths = {source.name: len(source.text.splitlines()) for source in SOURCES}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_no_tracked_file_is_large() -> None:
    """A wheel or a model that is committed by mistake stays in every clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    assert len(paths) > 500
    sizes = {str(path): path.stat().st_size for path in paths if path.is_file()}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_BYTES} == {}


def test_functions_are_short() -> None:
    found = {source.name: long_functions(source.tree) for source in SOURCES}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_no_check_is_switched_off_and_nothing_is_put_off() -> None:
    suspects = [source for source in SOURCES if SWITCHED_OFF.search(source.text)]
    comments = [(s.name, comment) for s in suspects for comment in comments_of(s)]
    assert [found for found in comments if SWITCHED_OFF.search(found[1])] == []


def test_every_module_says_what_it_is_for() -> None:
    undocumented = [s.name for s in read_sources("maskwright") if not ast.get_docstring(s.tree)]
    assert undocumented == []


def test_a_long_function_would_be_noticed() -> None:
    body = "\n".join("    x = 1" for _ in range(MAX_FUNCTION_LINES))
    assert long_functions(ast.parse(f"def f():\n{body}\n")) == ["f: 61 lines"]
