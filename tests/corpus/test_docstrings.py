import ast
import inspect
import subprocess
import time
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.docstrings import find_docstrings

SOURCE = r'''#!/usr/bin/env python
# A licence, with "quotes" and an apostrophe's trap.
"""The module."""
import os
NOT = """not a docstring"""
QUOTED = "\"\"\"" + '#' + ""

class Thing(Base):  # a comment: """here"""
    """A thing.

        Indented.
    Not.
    """
    table = {
        "key":
        r"""no docstring: this hangs off {} Thing"""
    }
    async def run(self, text='"""', other: str = "#") -> None:
        # A comment first.
        r"""Runs \d."""
        return """not this"""
    def quiet(self): pass

add_newdoc('numpy', 'ndarray', ('T',
    """Transposed."""))
add_docstr(
    torch.abs,
    r"""Absolute.""".format(**common))
'''


def test_docstrings_are_found_with_their_names() -> None:
    assert [pair for pair in find_docstrings(SOURCE) if "no docstring" not in pair[1]] == [
        ("", "The module."),
        ("Thing", "A thing.\n\n    Indented.\nNot."),
        ("run", "Runs \\d."),
        ("T", "Transposed."),
        ("torch.abs", "Absolute."),
    ]


@pytest.mark.parametrize("module", [ast, inspect, subprocess])
def test_the_parser_finds_the_same(module: ModuleType) -> None:
    source = inspect.getsource(module)
    expected = [
        docstring
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (docstring := ast.get_docstring(node)) is not None
    ]
    found = [text for _, text in find_docstrings(source)]
    assert len(found) > 5
    assert set(found) <= set(expected)
    triple = [text for text in expected if f'"""{text[:9]}' in source]
    assert set(triple) <= set(found)


@given(st.text(alphabet="\"'#\\\n:x r", max_size=60))
def test_any_text_is_no_crash(source: str) -> None:
    list(find_docstrings(source))


@pytest.mark.parametrize("source", ['"""' + 'x"' * 200_000, "'\n" * 200_000, 'a"' * 200_001])
def test_time_is_linear(source: str) -> None:
    started = time.perf_counter()
    list(find_docstrings(source))
    assert time.perf_counter() - started < 5
