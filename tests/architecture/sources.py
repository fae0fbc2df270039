"""The source files of the project, read once, for tests about their shape."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file; `module` is its dotted name (``maskwright.data.rows``)."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@cache
def read_sources(*folders: str) -> tuple[Source, ...]:
    """All Python files below folders of the project; folders that do not exist hold none."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(_read(path) for path in paths)


def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Source(path, module, text, ast.parse(text))


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Dotted names of everything a file imports, at its top or late.

    ``from a.b import c`` gives ``a.b.c``, which may be a module or something in one.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that they can be read and checked"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
