"""Rendering of the HTML templates in this folder, and the rows of their tables."""

import importlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, cast

from maskwright.errors import show_value

_MAX_DEPTH = 8  # of a configuration file, which is not validated


def fill_template(name: str, **content: Any) -> str:
    """Return a page as HTML, with all content escaped."""
    jinja: Any = importlib.import_module("jinja2")  # imported late, as few commands write a page
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_read), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.get_template(name).render(**content)
    return page.encode("utf-8", "replace").decode()  # JSON may contain unpaired surrogates


def _read(name: str) -> str:
    return files("maskwright.report").joinpath(name).read_text(encoding="utf-8")


def _as_mapping(value: object) -> Mapping[Any, Any] | None:
    """Return a value from YAML or JSON if it is a mapping, else None."""
    return cast(Mapping[Any, Any], value) if isinstance(value, Mapping) else None


def flatten(
    values: Mapping[Any, object], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the value, as text, of each leaf of a nested mapping."""
    for key, value in values.items():
        name = f"{prefix}{show_value(key)}"
        nested, texts = _as_mapping(value), _as_texts(value)
        if nested is not None and depth < _MAX_DEPTH:
            yield from flatten(nested, f"{name}.", depth + 1)
        elif texts is not None:
            yield name, (" " if name == "command" else ", ").join(texts)
        else:
            yield name, show_value(value)


def _as_texts(value: object) -> list[str] | None:
    """Return a value from YAML or JSON if it is a list of texts, else None."""
    items = cast(list[object], value) if isinstance(value, list) else [None]
    texts = [item for item in items if isinstance(item, str)]
    return texts if len(texts) == len(items) else None
