import ast
import importlib.util
import inspect
import subprocess
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.readers.pydocs import extract_prose, find_docstrings, is_prose, read_pydocs
from tests.limits import limited_cpu_seconds


def test_the_environment_holds_megabytes_of_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, for speed: it is the largest part and read by the same code."""
    find = importlib.util.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == "torch" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    documents = dict(read_pydocs())
    text = "\n".join(documents.values())
    assert 2_000_000 < len(text) < 8_000_000
    assert documents["topics.assert"].startswith('The "assert" statement\nAssert statements are')
    assert any(name.startswith("numpy.") for name in documents)
    assert not any(name.startswith("torch.") for name in documents)
    words = Counter(text.split())
    assert [word for word, _ in words.most_common(1)] == ["the"]
    assert ">>>" not in words
    repairs: Counter[str] = Counter()
    clean_text(text, repairs)
    assert repairs.total() < 5


def test_the_order_is_that_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "A sentence of some words. " * 50
    (tmp_path / "test").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "test" / "skipped.py").write_text('"""Tests are skipped by name."""')
    (tmp_path / "b.py").write_text('"""The second module here."""')
    (tmp_path / "a.py").write_text(
        f'"""The first module here."""\ndef f():\n    """{long}"""\n'
        'def g():\n    """Does it all."""\n'
    )
    (tmp_path / "pkg" / "__init__.py").write_text('"""The package\'s own docstring."""')
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    documents = [pair for pair in read_pydocs() if not pair[0].startswith("topics.")]
    assert documents == [
        ("a:2", long.strip()),
        ("a (members)", "The first module here.\nDoes it all."),
        ("b (members)", "The second module here."),
        ("pkg (members)", "The package's own docstring."),
    ]


SOURCE = r'''#!/usr/bin/env python
# A license, with "quotes" and an apostrophe's trap.
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


def test_docstrings_are_found() -> None:
    assert [text for text in find_docstrings(SOURCE) if "no docstring" not in text] == [
        "The module.",
        "A thing.\n\n    Indented.\nNot.",
        "Runs \\d.",
        "Transposed.",
        "Absolute.",
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
    found = list(find_docstrings(source))
    assert len(found) > 5
    assert set(found) <= set(expected)
    triple = [text for text in expected if f'"""{text[:9]}' in source]
    assert set(triple) <= set(found)


@pytest.mark.parametrize("source", ['"""' + 'x"' * 200_000, "'\n" * 200_000, 'a"' * 200_001])
def test_time_is_linear(source: str) -> None:
    with limited_cpu_seconds(30):  # quadratic time is many minutes
        list(find_docstrings(source))


DOCSTRING = """\
Returns the :func:`torch.abs` of ``input``, as `the notes <notes>`_ say, in a long
sentence that goes on in the **second** line.

.. math::
    \\text{out}_{i} = |\\text{input}_{i}|

.. note::
    This is a note of several words.

Args:
    input (Tensor): the input tensor, described at great length and
        wrapped.
    {out}

Example::

    >>> torch.abs(torch.tensor([-1, -2, 3]))
    tensor([ 1,  2,  3])

    import torch and do it

See Also
--------
A sentence follows the heading.

>>> outside()
of an example

- an item which is long enough to be wrapped, so it
  goes on here
- another item
"""


def test_sentences_stay_and_code_goes() -> None:
    assert extract_prose(DOCSTRING).split("\n") == [
        "Returns the torch.abs of input, as the notes say, in a long sentence that goes on in"
        " the second line.",
        "This is a note of several words.",
        "Args:",
        "input (Tensor): the input tensor, described at great length and wrapped.",
        "See Also",
        "A sentence follows the heading.",
        "- an item which is long enough to be wrapped, so it goes on here",
        "- another item",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick (brown) fox's well-known jump, isn't it?", True),
        ("x = np.arange(6).reshape(2, 3)", False),
        ("[[1, 2, 3], [4, 5, 6]]", False),
        ("Parameters", False),
        ("", False),
    ],
)
def test_prose_is_mostly_words(text: str, expected: bool) -> None:
    assert is_prose(text) == expected
