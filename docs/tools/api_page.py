"""The page docs/api.md: the public functions and classes, from their docstrings."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import maskwright
from benchmarks.common import ROOT

PAGE = ROOT / "docs" / "api.md"
_HEAD = """# Python API

Look up a public function or class here: its parameters, what it returns and which errors it raises.
[From Python](python.md) shows how they work together. All are imported from `maskwright`; any other
module may change without notice. `python -m docs.tools reference` writes this page from the code.
"""
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_TITLES = {"Args": "Parameters"}
_METHODS = (FunctionType, MethodType)
_ITEM = re.compile(r"(\*{0,2}\w[\w, *.]*): ")


def write_api_page() -> str:
    """Return the page as Markdown."""
    return "".join([_HEAD, *(part for name in sorted(maskwright.__all__) for part in _entry(name))])


def _entry(name: str) -> Iterator[str]:
    """Yield the parts of one public name: its signature, its docstring, and its methods."""
    thing = getattr(maskwright, name)
    [node] = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    yield f"\n## {name}\n"
    if isinstance(node, ast.FunctionDef):
        yield _signature(thing, name)
    elif inspect.isfunction(thing.__init__) and not dataclasses.is_dataclass(thing):
        yield _signature(thing.__init__, name)
    yield convert(inspect.getdoc(thing) or "")
    for method, function in _methods(thing) if inspect.isclass(thing) else ():
        yield f"\n### `{name}.{method}()`\n"
        yield _signature(function, method)
        yield convert(inspect.getdoc(function) or "")


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that a class itself defines."""
    for name in vars(thing):
        value = getattr(thing, name)
        if (name == "__call__" or not name.startswith("_")) and isinstance(value, _METHODS):
            yield name, value


def _signature(function: Any, name: str) -> str:
    """Return the header of a function as the source has it, without ``self`` and ``cls``."""
    source = textwrap.dedent(inspect.getsource(function))
    [node] = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    lines = source.splitlines()[node.lineno - 1 : node.body[0].lineno - 1]
    header = "\n".join(lines).rstrip().removesuffix(":").removesuffix(" -> None")
    header = re.sub(r"^def \w+\((\s*)(?:(?:self|cls)(?:,\s*|(?=\))))?", rf"{name}(\1", header)
    return f"\n```python\n{header}\n```\n"


def convert(docstring: str) -> str:
    """Return a docstring with Google's sections and literal blocks as Markdown."""
    parts: list[str] = []
    for block in re.split(r"\n\n(?=\S)", docstring):
        if section := _SECTION.match(block):
            title = _TITLES.get(section[1], section[1])
            body = textwrap.dedent(block[section.end() :].strip("\n"))
            parts.append(f"**{title}**\n\n{_list_items(body)}")
            continue
        found = re.fullmatch(r"(.*?)(::)?(?:\n\n(    .*))?", block, re.DOTALL)
        assert found
        text, literal, code = found.groups()
        if text.strip():
            parts.append(_inline(text) + ":" * bool(literal))
        if code:
            parts.append(f"```python\n{textwrap.dedent(code)}\n```")
    return "".join(f"\n{part}\n" for part in parts)


def _list_items(body: str) -> str:
    """Return ``name: text`` lines as a list; a body without names stays a paragraph."""
    items = re.split(r"\n(?=\S)", body)
    if not all(_ITEM.match(item) for item in items):
        return _inline(body)
    pairs = ((item.partition(":")[0], item.partition(":")[2]) for item in items)
    return "\n".join(f"- `{name}`:{_inline(' '.join(text.split()), ' ')}" for name, text in pairs)


def _inline(text: str, before: str = "") -> str:
    """Return text with reStructuredText's double backticks as Markdown's."""
    return before + re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
