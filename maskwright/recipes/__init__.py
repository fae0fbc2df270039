"""Recipes: complete configurations, each with what it needs, gives and how to run it.

A recipe is a YAML file in this folder. The comment lines at its head are for people; the first
one is its title; those below it, up to an empty one, have the form ``name: text`` (source,
hardware, time, result, command) and are shown by ``maskwright recipes``; the rest is for readers.
"""

from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from maskwright.config import Plain, parse_yaml
from maskwright.errors import ConfigError, did_you_mean

_FOLDER = Path(__file__).parent
_NAMES = sorted(path.stem for path in _FOLDER.glob("*.yaml"))
_FIRST_LISTED = ("auto", "continue", "quickstart", "tiny", "small", "base", "wide", "babylm-10m")


@dataclass(frozen=True)
class Recipe:
    """One recipe.

    Attributes:
        title: the first line of its header.
        facts: hardware, time, result, command, as its header states them.
        values: the configuration, nested.
    """

    name: str
    title: str
    facts: dict[str, str]
    values: Plain


def list_recipes() -> list[Recipe]:
    """Return all recipes: the most used ones first, then the others by name."""
    return [load_recipe(name) for name in dict.fromkeys((*_FIRST_LISTED, *_NAMES))]


@cache
def load_recipe(name: str) -> Recipe:
    """Read a recipe by name; its values must not be changed.

    Raises:
        ConfigError: there is none of this name; names the nearest.
    """
    if name not in _NAMES:
        remedy = did_you_mean(name, _NAMES) or f"There are {', '.join(_NAMES)}."
        raise ConfigError("recipe", name, "is not a recipe", remedy)
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    header = [line[1:].strip() for line in text.splitlines() if line.startswith("#")]
    parts = (line.partition(": ") for line in takewhile(bool, header[1:]))
    facts = {key: value for key, colon, value in parts if colon}
    return Recipe(name, header[0] if header else name, facts, parse_yaml(text, name))
