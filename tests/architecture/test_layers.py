"""Imports go one way: a package imports only from layers below its own."""

import ast
import re
import subprocess
import sys

import pytest

from tests.architecture.sources import (
    ROOT,
    Source,
    all_imports,
    imported_names,
    read_sources,
    texts_of,
)
from tests.forked import Forked

# From the bottom to the top. Packages on one layer do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("extras", "files"),
    ("config", "console", "formatting", "logs", "provenance"),
    ("corpus", "recipes", "tokenizer", "shards"),
    ("selection",),
    ("preparation",),
    ("attention_context", "distributed"),
    ("data", "model", "optim"),
    ("objectives", "model_folder"),
    ("train",),
    ("runs",),
    ("report",),
    ("inference",),
    ("finetuning",),
    ("evaluation",),
    ("interop",),
    ("pretraining", "serving", "sweeping"),
    ("adapting",),
    ("cli",),
    ("__main__",),
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
TENSORS_FROM = LEVELS["distributed"]

SOURCES = read_sources("maskwright")
MODULES = {source.module for source in SOURCES}
# Libraries that do what this project does -> the one module that imports them, late and by name, to
# check an export. Nothing else may depend on them.
TWINS = {
    "transformers": "maskwright.interop.transformers",
    "sentence_transformers": "maskwright.interop.transformers",
}


def room_of(module: str) -> str:
    """``maskwright.data.rows`` lies in the room ``data``."""
    return module.split(".")[1]


def rooms_imported(source: Source) -> set[str]:
    """Rooms of the package; a public name of the package itself counts as one above all.

    A text that is the name of a module counts as well: a registry of modules to import by name.
    """
    names = all_imports(source) | (texts_of(source.tree) & MODULES)
    return {room_of(name) for name in names if name.startswith("maskwright.")}


def third_parties(source: Source) -> set[str]:
    return {name.split(".")[0] for name in all_imports(source)}


def inner_sources() -> list[Source]:
    """All but the package itself, whose public names are imported late from everywhere."""
    return [source for source in SOURCES if source.module != "maskwright"]


def test_every_room_has_a_layer_and_every_layer_a_room() -> None:
    assert {room_of(source.module) for source in inner_sources()} == LEVELS.keys()


def test_imports_go_down() -> None:
    wrong = [
        f"{source.name} ({room}) imports {other}"
        for source in inner_sources()
        for room in [room_of(source.module)]
        for other in rooms_imported(source)
        if other != room and LEVELS.get(other, len(LAYERS)) >= LEVELS[room]
    ]
    assert wrong == []


def test_contributing_shows_these_rooms() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("<!-- rooms: begin -->")[2].partition("<!-- rooms: end -->")[0]
    first_cells = [line.split("|")[1] for line in table.strip().splitlines()[2:]]
    shown = [set(re.findall("`([a-z_]+)`", cell)) for cell in first_cells]
    assert shown == [set(layer) for layer in reversed(LAYERS) if layer != ("__main__",)]


def test_contributing_names_the_registries_where_they_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`(_?[A-Z]\w+)`[^`|]* in `([\w/]+\.py)`", text)
    assert len(named) >= 8
    for name, file in named:
        path = ROOT / (file if file.startswith("maskwright/") else f"maskwright/{file}")
        assert re.search(rf"^{name}\b.* = ", path.read_text(encoding="utf-8"), re.MULTILINE), file


def test_the_check_would_notice() -> None:
    (trainer,) = (s for s in SOURCES if s.module == "maskwright.train.trainer")
    assert {"data", "model", "optim", "errors", "train"} <= rooms_imported(trainer)
    assert "torch" in third_parties(trainer)


def test_torch_stays_where_tensors_are() -> None:
    low = {name for name, level in LEVELS.items() if level < TENSORS_FROM} | {"preparation"}
    users = {room_of(s.module) for s in inner_sources() if "torch" in third_parties(s)}
    assert users
    assert users & low == set()


def test_tokenizers_is_imported_in_one_room() -> None:
    users = {room_of(s.module) for s in inner_sources() if "tokenizers" in third_parties(s)}
    assert users <= {"tokenizer"}


@pytest.mark.parametrize("library", TWINS)
def test_transformers_is_imported_for_exports_alone(library: str) -> None:
    users = [s.module for s in SOURCES if library in third_parties(s)]
    assert users == [TWINS[library]]
    by_statement = {name.split(".")[0] for s in SOURCES for name in imported_names(s.tree)}
    assert library not in by_statement


def test_imports_by_name_are_seen() -> None:
    lines = [
        "import_library('transformers', 'sentence-transformers', 'x')",
        "TARGETS = {'toy': 'maskwright.train.trainer'}",
    ]
    text = "\n".join(lines)
    source = Source(ROOT / "x.py", "maskwright.interop.x", text)
    assert third_parties(source) == {"transformers"}
    assert rooms_imported(source) == {"train"}


def test_package_files_import_nothing() -> None:
    """So that importing one module (a configuration, say) imports no other."""
    for source in inner_sources():
        if source.is_package and room_of(source.module) != "recipes":
            assert list(imported_names(source.tree)) == [], source.name


def light_modules() -> list[str]:
    configs = [s.module for s in SOURCES if s.module.endswith(".config")]
    return ["maskwright", "maskwright.cli.main", "maskwright.cli.flags", *configs]


def test_commands_and_configurations_start_without_heavy_libraries() -> None:
    names = ", ".join(light_modules())
    code = f"import sys, {names}\nassert not {{'torch', 'tokenizers'}} & sys.modules.keys()"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_training_needs_no_zstandard() -> None:
    """The image of a rented GPU has torch, and not all that preparing text needs."""
    code = """
import sys
for name in [name for name in sys.modules if name.startswith("maskwright")]:
    del sys.modules[name]
sys.modules["zstandard"] = None
import maskwright.pretraining.pretrain
"""
    with Forked([sys.executable, "-c", code]) as process:
        _, error = process.communicate()
    assert process.returncode == 0, error


def test_commands_print_in_one_place() -> None:
    """So that whatever they print is escaped; ``cli`` prints what is so already."""
    printing = {
        source.module
        for source in inner_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "print"
    }
    consoles = {s.module for s in SOURCES if "rich.console.Console" in imported_names(s.tree)}
    assert printing == {"maskwright.cli.main", "maskwright.console"}
    assert consoles == set()
