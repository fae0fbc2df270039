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

Look up a function or class: its parameters, what it returns and which errors it raises.
[From Python](python.md) shows how they work together. Import them from `maskwright`; other modules
may change. `help(maskwright.pretrain)` says when each error is raised; input causes only
`MaskwrightError`s. `python -m docs.tools reference` writes this page.

Where a parameter is not explained:

"""
_SHARED = (  # said once, not in each list
    "- `folder`: a run directory, a model folder, or `hf:NAME`.",
    "- `device`: the device, such as `cpu` or `cuda`; default: a GPU if there is one.",
    "- `batch_tokens`: the maximum tokens per batch, padding included.",
)
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_TITLES = {"Args": "Parameters"}
_METHODS = (FunctionType, MethodType)
# Methods that other packages of maskwright call, and users need not.
_INTERNAL = (
    *("attempt", "compute_perplexity", "describe_random", "encode_with_offsets", "fetch_ahead"),
    *("find_lost", "find_unknown_share", "from_parts", "make_rows", "mask_random_word"),
    *("masks_begin_words", "predict_ids", "score_encoded", "with_lowercase"),
)
_ITEM = re.compile(r"(\*{0,2}\w[\w, *.]*): ")


def write_api_page() -> str:
    """Return the page as Markdown."""
    entries = (part for name in sorted(maskwright.__all__) for part in _entry(name))
    return "".join([_HEAD, "\n".join(_SHARED), "\n", *entries])


def _entry(name: str) -> Iterator[str]:
    """Yield the parts of one public name: its signature, its docstring, and its methods."""
    thing = getattr(maskwright, name)
    text = inspect.getdoc(thing) or ""
    yield f"\n## {name}\n"
    if not inspect.isclass(thing):
        yield _signature(thing, name, text)
    elif inspect.isfunction(thing.__init__) and not dataclasses.is_dataclass(thing):
        yield _signature(thing.__init__, name, text)
    yield convert(text)
    for method, function in _methods(thing) if inspect.isclass(thing) else ():
        text = inspect.getdoc(function) or ""
        yield _signature(function, f"{name}.{method}", text)
        yield convert(text)


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that a class itself defines, without those of `_INTERNAL`."""
    for name in vars(thing):
        value = getattr(thing, name)
        is_public = name == "__call__" or not name.startswith("_")
        if is_public and isinstance(value, _METHODS) and name not in _INTERNAL:
            yield name, value


def _signature(function: Any, name: str, docstring: str) -> str:
    """Return the header of a function, without ``self`` and ``cls``.

    Parameters that the docstring lists have no types.
    """
    [node] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    if given.args and given.args[0].arg in ("self", "cls"):
        del given.args[0]
    if "Args:" in docstring:
        for one in (*given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if one is not None:
                one.annotation = None
    parameters = re.sub(r"(: [^,=]+)=", r"\1 = ", ast.unparse(given))
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns).strip(chr(39))}"
    header = f"{name}({parameters}){returns.removesuffix(' -> None')}"
    kept = header.replace(" ", "\0").replace(",\0", ", ")  # a line ends after a comma only
    lines = textwrap.wrap(kept, 96, subsequent_indent="    ", break_long_words=False)
    return "\n```python\n" + "\n".join(lines).replace("\0", " ") + "\n```\n"


def convert(docstring: str) -> str:
    """Return a docstring with Google's sections and literal blocks as Markdown."""
    parts: list[str] = []
    for block in re.split(r"\n\n(?=\S)", docstring):
        if section := _SECTION.match(block):
            title = _TITLES.get(section[1], section[1])
            body = textwrap.dedent(block[section.end() :].strip("\n"))
            if section[1] == "Raises":
                names = re.findall(r"^(\w[\w, ]*):", body, re.MULTILINE)
                errors = [f"`{error}`" for error in ", ".join(names).split(", ")]
                parts.append(f"**Raises** {', '.join(errors)}")
            elif items := _list_items(body):
                parts.append(f"**{title}**\n\n{items}")
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
    lines = (f"- `{name}`:{_inline(' '.join(text.split()), ' ')}" for name, text in pairs)
    return "\n".join(line for line in lines if line not in _SHARED)


def _inline(text: str, before: str = "") -> str:
    """Return text with reStructuredText's double backticks as Markdown's."""
    return before + re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
