"""Pages from the templates beside this file; what they show is escaped."""

import importlib
from importlib.resources import files
from typing import Any


def fill_template(name: str, **content: Any) -> str:
    """The page as HTML."""
    jinja: Any = importlib.import_module("jinja2")  # no page is needed by most commands
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_read), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template(name).render(**content)
    return page.encode("utf-8", "replace").decode()  # JSON may hold halves of characters


def _read(name: str) -> str:
    return files("maskwright.report").joinpath(name).read_text(encoding="utf-8")
