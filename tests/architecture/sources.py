"""The source files of the project, read and parsed once, for tests about their shape."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Functions that import, or look for, the module that their first argument names.
HELPERS = {"find_spec", "import_extra", "import_library", "import_module", "importorskip"}


@dataclass(frozen=True)
class Source:
    """One Python file; `module` is its dotted name (``maskwright.data.rows``)."""

    path: Path
    module: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed when a test asks for it: every worker of pytest imports all tests."""
        return ast.parse(self.text)

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


@cache
def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Source(path, module, text)


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


def imports_by_name(source: Source) -> Iterator[tuple[ast.Call, list[str]]]:
    """Yield the calls of `HELPERS` with the modules that they name; [] if no literal names one.

    A loop variable stands for all texts of the tuples that its loop goes through.
    """
    if not any(name in source.text for name in HELPERS):
        return
    nodes = list(ast.walk(source.tree))
    loops: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.For):
            tuples = (part for part in ast.walk(node.iter) if isinstance(part, ast.Tuple))
            texts = [str(e.value) for t in tuples for e in t.elts if isinstance(e, ast.Constant)]
            loops.setdefault(ast.unparse(node.target), []).extend(texts)
    for node in nodes:
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            argument = node.args[0]
            if name in HELPERS and isinstance(argument, ast.Constant):
                yield node, [str(argument.value)]
            elif name in HELPERS:
                yield node, loops.get(ast.unparse(argument), [])


@cache
def all_imports(source: Source) -> frozenset[str]:
    """Return the dotted names of everything a file imports: at its top, late, or by name."""
    named = {module for _, modules in imports_by_name(source) for module in modules}
    return frozenset(named).union(imported_names(source.tree))


def texts_of(tree: ast.Module) -> set[str]:
    """Return all string literals of a file; of ``module:name`` the module."""
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value.partition(":")[0] for node in constants if isinstance(node.value, str)}
