"""The built-in corpus: what the Python environment says about itself, in English.

About 8 MB of documentation of the standard library, the language reference in
`pydoc_data.topics`, numpy and torch, found without importing any of the modules. It needs no
download, so that everything can be tried at once, and it differs slightly between versions.
"""

import importlib
import importlib.util
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from maskwright.corpus.docstrings import find_docstrings
from maskwright.corpus.prose import extract_prose

_PACKAGES = ("numpy", "torch")
_SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "testing", "idle_test", "site-packages", "dist-packages", "pydoc_data")
)
# A docstring of this length is a document; shorter ones are gathered by module.
_LONG_CHARACTERS = 1_000


def read_pydocs() -> Iterator[tuple[str, str]]:
    """(name, text) of every document, in an order that only the environment's files decide.

    A document is a language topic, a long docstring, or the other docstrings of one module.
    """
    yield from _read_topics()
    yield from _read_tree(Path(sysconfig.get_path("stdlib")), "")
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)  # of a top-level package: imports nothing
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from _read_tree(Path(folder), f"{package}.")


def _read_topics() -> Iterator[tuple[str, str]]:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions package it apart
        return
    for name in sorted(topics):
        if prose := extract_prose(topics[name]):
            yield f"topics.{name}", prose


def _read_tree(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    for path in _find_modules(folder):
        module = prefix + ".".join(path.relative_to(folder).with_suffix("").parts)
        yield from _read_module(path, module.removesuffix(".__init__"))


def _find_modules(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # no standard library on disk, as in a frozen program
        return
    for entry in entries:
        if entry.suffix == ".py":
            yield entry
        elif entry.name not in _SKIPPED_FOLDERS and entry.is_dir():
            yield from _find_modules(entry)


def _read_module(path: Path, module: str) -> Iterator[tuple[str, str]]:
    try:
        source = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    short: list[str] = []
    for name, docstring in find_docstrings(source):
        prose = extract_prose(docstring)
        if len(prose) >= _LONG_CHARACTERS:
            yield (f"{module}.{name}" if name else module), prose
        elif prose:
            short.append(prose)
    if short:
        yield f"{module} (members)", "\n".join(short)
