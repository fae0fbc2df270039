"""The published form of configuration and provenance: without folders and credentials."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from maskwright.config import Plain, fields_of, merge, nested
from maskwright.errors import show_value
from maskwright.files import as_mapping
from maskwright.runs.config import PretrainConfig
from maskwright.shards.remote import is_remote

_HUB = "hf:"
_LOCAL_SCHEMES = ("file", "local", "memory")
_LOCAL = re.compile(r"[/.~]")
_MOST_DEPTH = 8
_CPU = "cpu"  # in provenance: words that may have a slash, "w/ Radeon Graphics", but are no path


def shorten_path(path: str) -> str:
    """Return the published form of a path: its last component, because its folders are private.

    Hub names are kept whole; a URL loses user and query, which may be credentials.
    """
    if is_remote(path):
        return _shorten_url(path)
    if path.startswith(_HUB):
        name, mark, field = path.removeprefix(_HUB).partition("#")
        return f"{_HUB}{PurePath(name).name if _LOCAL.match(name) else name}{mark}{field}"
    return PurePath(path).name or path


def shorten_paths(values: Mapping[str, Any]) -> Plain:
    """Return the plain values of a configuration with all paths in their published form."""
    shortened: Plain = dict(values)
    if values.get("init_from"):  # it brings the tokenizer; the path is the cache of its download
        shortened = merge(shortened, nested("tokenizer.path", None))
    for info in fields_of(PretrainConfig):
        if info.is_path and (found := _find(shortened, info.name)):
            shortened = merge(shortened, nested(info.name, _shorten_all(found)))
    return shortened


def shorten_provenance(value: Any, depth: int = 0, key: object = "") -> Any:
    """Return provenance.json, or its value of a key, with paths in published form, without diff."""
    if isinstance(value, Mapping | list) and depth >= _MOST_DEPTH:
        return show_value(cast(object, value))
    if isinstance(value, Mapping):
        return {
            show_value(name): _count_lines(item)
            if name == "diff"
            else shorten_provenance(item, depth + 1, name)
            for name, item in cast(Mapping[Any, Any], value).items()
        }
    if isinstance(value, list):
        return [shorten_provenance(item, depth + 1, key) for item in cast(list[Any], value)]
    if not isinstance(value, str):
        return value
    flag, mark, given = value.partition("=") if value.startswith("--") else ("", "", value)
    is_path = _LOCAL.match(given) or ("/" in given and key != _CPU)
    return f"{flag}{mark}{shorten_path(given)}" if is_path else value


def _count_lines(diff: Any) -> str:
    return f"{len(diff.splitlines()):,} lines" if isinstance(diff, str) else ""


def _find(values: Mapping[str, Any], dotted: str) -> Any:
    found: Any = values
    for name in dotted.split("."):
        found = as_mapping(found).get(name)
    return found


def _shorten_all(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_shorten_all(item) for item in cast(Sequence[Any], value)]
    return shorten_path(value) if isinstance(value, str) else value


def _shorten_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # such as brackets that do not close
        return PurePath(url).name
    if parts.scheme in _LOCAL_SCHEMES:
        return PurePath(parts.path).name
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
