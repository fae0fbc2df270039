"""Strict configuration: frozen dataclasses filled from YAML and flags, with errors that help.

A configuration is a tree of frozen dataclasses, each beside the code it configures. Unknown keys
are errors that name the nearest valid key; values are converted only where nothing is lost
(``"1e-3"`` to a float, ``8`` to ``8.0``). Rules between fields are in ``__post_init__`` and
raise `ConfigError`; this module puts the section's name before the field's.
"""

import dataclasses
import math
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast

import yaml

from maskwright.errors import ConfigError, UnknownKeyError, did_you_mean, find_nearest, show_value

ConfigType = TypeVar("ConfigType")
Plain = dict[str, Any]
_get_hints = cache(typing.get_type_hints)  # evaluates every annotation: 4 ms for all of a run

_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
_LIMITS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}
# The limit everywhere in the package; the largest published vocabularies have a million tokens.
MAX_VOCAB_SIZE = 1 << 24
MAX_YAML_BYTES, _MAX_YAML_DEPTH = 1_000_000, 50  # many times those of any configuration
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may be built without libyaml


def setting(default: Any, help: str, *, is_path: bool = False, has_commas: bool = False) -> Any:
    """Return a dataclass field with a default value and its help line.

    Args:
        is_path: True if the value names files, whose folders must not be published.
        has_commas: True for a list whose items may contain commas, as regular expressions do: its
            flag takes several arguments.
    """
    more = {"is_path": is_path, "has_commas": has_commas}
    return dataclasses.field(default=default, metadata={"help": help, **more})


def section(factory: type[ConfigType]) -> ConfigType:
    """Return a dataclass field that is itself a configuration section with all its defaults."""
    return dataclasses.field(default_factory=factory)


@dataclass(frozen=True)
class FieldInfo:
    """One field of a configuration tree, with the facts that a flag needs."""

    name: str  # dotted, as in "train.max_steps"
    annotation: Any
    default: Any
    help: str
    is_path: bool = False
    has_commas: bool = False


def fields_of(cls: type, prefix: str = "") -> Iterator[FieldInfo]:
    """Yield all fields of the tree `cls`, depth first, with dotted names."""
    hints = _get_hints(cls)
    for field in dataclasses.fields(cls):
        annotation = hints[field.name]
        if dataclasses.is_dataclass(annotation):
            yield from fields_of(cast(type, annotation), f"{prefix}{field.name}.")
        else:
            help_text = str(field.metadata.get("help", ""))
            more = [bool(field.metadata.get(name)) for name in ("is_path", "has_commas")]
            yield FieldInfo(prefix + field.name, annotation, field.default, help_text, *more)


def from_mapping(
    cls: type[ConfigType],
    mapping: Mapping[str, Any],
    path: str = "",
    known: Iterable[FieldInfo] | None = None,
) -> ConfigType:
    """Build `cls` from nested plain values.

    Raise UnknownKeyError for a key that it does not have, with the nearest of `known` or its
    own; ConfigError for a value of the wrong type, or one that breaks a rule of `cls`.
    """
    hints = _get_hints(cls)
    names = [field.name for field in dataclasses.fields(cast(Any, cls))]
    known = fields_of(cls, path) if known is None else known
    values: Plain = {}
    if not isinstance(cast(Any, mapping), Mapping):
        name = path.removesuffix(".") or "configuration"
        raise ConfigError(name, mapping, "must be a section with keys and values")
    for key, value in mapping.items():
        if key not in names:
            key = path + show_value(key)
            valid = [info.name for info in known]
            if isinstance(value, Mapping):
                valid = [name.rpartition(".")[0] for name in valid]
            raise UnknownKeyError(key, None if key in valid else find_nearest(key, valid))
        annotation = hints[key]
        if dataclasses.is_dataclass(annotation):
            values[key] = from_mapping(cast(type, annotation), value, f"{path}{key}.", known)
        else:
            values[key] = convert(value, annotation, path + key)
    try:
        return cls(**values)
    except ConfigError as error:
        raise (error.within(path[:-1]) if path else error) from None


def to_mapping(config: Any) -> Plain:
    """Return the nested plain values of a configuration, ready for YAML or JSON."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, tuple | list):
            return [plain(item) for item in cast(list[Any], value)]
        return str(value) if isinstance(value, Path) else value

    return plain(config)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Plain:
    """Return `base` overridden by the values of `over`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(cast(Plain, below), cast(Plain, value))
        else:
            merged[key] = value
    return merged


def nested(dotted: str, value: Any) -> Plain:
    """Return a dotted value nested: ``nested("train.max_steps", 3)`` is ``{"train": {"max_steps":
    3}}``.
    """
    for name in reversed(dotted.split(".")):
        value = {name: value}
    return value


def read_yaml(path: Path) -> Plain:
    """Read a YAML file of nested keys; plain data only, never Python objects.

    Raises:
        ConfigError: no such file, too large, not YAML, or not a mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_YAML_BYTES + 1)
        if len(content) > MAX_YAML_BYTES:
            rule = f"has more than {MAX_YAML_BYTES:,} bytes, too many for a configuration"
            raise ConfigError("config", path, rule, "Check the path.")
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError("config", path, f"cannot be read: {reason}") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> Plain:
    """Parse YAML as `read_yaml` does, from a string that came from `name`."""
    loader = _SurrogateLoader if re.search(r"\\u[dD]|\\U0000[dD]", text) else _FastLoader
    try:
        _check_structure(cast(Any, yaml).parse(text, loader))
        loaded: Any = yaml.load(text, loader)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError("config", name, f"is not valid YAML: {reason}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError("config", name, "must contain keys and values")
    return cast(Plain, loaded)


def _check_structure(events: Iterable[yaml.Event]) -> None:
    """Refuse aliases, ten lines of which are a billion values ("billion laughs"), and depth."""
    depth, start, end = 0, yaml.CollectionStartEvent, yaml.CollectionEndEvent
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"alias *{event.anchor} is not supported")
        depth += isinstance(event, start) - isinstance(event, end)
        if depth > _MAX_YAML_DEPTH:
            raise yaml.YAMLError("it is nested too deeply")


class _StrictConstructor(yaml.constructor.SafeConstructor):
    """A constructor of plain data that refuses duplicate keys: YAML keeps only the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, times in keys.items():
            if times > 1:
                raise yaml.YAMLError(f"key {key} occurs twice")
        return super().construct_mapping(node, deep)


class _FastLoader(_StrictConstructor, _Loader):
    """libyaml's, which takes an eighth of the time."""


class _SurrogateLoader(_StrictConstructor, yaml.SafeLoader):
    """Python's, which also reads lone surrogates: bytes of file names that are not UTF-8."""


def write_yaml(config: Any) -> str:
    """Return the configuration as YAML, sections and fields in the order of the classes."""
    return yaml.safe_dump(to_mapping(config), sort_keys=False, allow_unicode=True)


def describe_type(annotation: Any) -> str:
    """Describe a type for users: ``int``, ``gelu|relu``, ``list of str``, ``float or none``."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "|".join(str(choice) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(argument) for argument in arguments)
    if origin is tuple:
        return f"list of {describe_type(arguments[0])}"
    return "none" if annotation is type(None) else annotation.__name__


def convert(value: Any, annotation: Any, name: str) -> Any:
    """Convert one plain value to its field's type; raise ConfigError with the nearest choice."""
    try:
        return _convert(value, annotation, name)
    except (TypeError, ValueError, LookupError, OverflowError):
        rule = f"must be {describe_type(annotation)}"
        remedy = did_you_mean(value, _choices(annotation)) if isinstance(value, str) else ""
        raise ConfigError(name, value, rule, remedy) from None


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is one of `choices`, which a registry may extend."""
    words = list(choices)
    if value not in words:
        raise ConfigError(name, value, f"must be {'|'.join(words)}", did_you_mean(value, words))


def check_numbers(config: object, *names: str, remedy: str = "", **limits: float) -> None:
    """Raise ConfigError unless these fields, if set, keep the limits.

    Args:
        limits: of ``at_least``, ``at_most`` and, without the limit itself, ``above`` and ``below``.
    """
    rule = "must be " + " and ".join(f"{kind} {n}".replace("_", " ") for kind, n in limits.items())
    if set(limits) in ({"at_least", "at_most"}, {"above", "below"}):
        rule = "must be between {} and {}".format(*limits.values())
    elif limits == {"at_least": 0}:
        rule = "must not be negative"
    for name in names:
        value = getattr(config, name)
        kept = (value is None or _LIMITS[kind](value, n) for kind, n in limits.items())
        if not all(kept):
            raise ConfigError(name, value, rule, remedy)


def _choices(annotation: Any) -> list[str]:
    """Return the words that a ``Literal``, alone or in a union, allows."""
    if typing.get_origin(annotation) is Literal:
        return [str(choice) for choice in typing.get_args(annotation)]
    return [choice for part in typing.get_args(annotation) for choice in _choices(part)]


def _convert(value: Any, annotation: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return _one_of(value, arguments)
    if origin in (Union, types.UnionType):
        return _convert_union(value, arguments, name)
    if origin is tuple:
        items = cast(list[Any], value) if isinstance(value, list | tuple) else [value]
        if isinstance(value, str):
            items = [part.strip() for part in value.split(",") if part.strip()]
            if not items:  # such as of a shell's unset variable
                raise ConfigError(name, "''", "is empty", "Give a value, or none.")
            items = [] if items == ["none"] else items
        return tuple(convert(item, arguments[0], f"{name}[{i}]") for i, item in enumerate(items))
    return _convert_scalar(value, annotation)


def _one_of(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        # YAML 1.1 reads a bare on/off as a boolean, so a choice may arrive as either.
        spelled = {True: "on", False: "off"}.get(value) if isinstance(value, bool) else value
        if choice in (value, spelled):
            return choice
    raise ValueError


def _convert_union(value: Any, arguments: tuple[Any, ...], name: str) -> Any:
    word = value.lower() if isinstance(value, str) else value
    if type(None) in arguments and word in (None, "none", "null"):
        return None
    for argument in arguments:
        if argument is not type(None):
            try:
                return _convert(value, argument, name)
            except (TypeError, ValueError, LookupError, OverflowError):
                continue
    raise ValueError


def _convert_scalar(value: Any, annotation: Any) -> Any:
    if annotation is bool:
        return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
    if isinstance(value, bool):
        raise ValueError  # true is not a number
    if annotation is int:
        return _convert_integer(value)
    if annotation is float:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return number
    if annotation is not str or not isinstance(value, str | int | float | date):
        raise ValueError
    # Text that is not valid Unicode cannot be written; file names that are not UTF-8 can.
    str(value).encode("utf-8", "surrogateescape")
    return str(value)


def _convert_integer(value: Any) -> int:
    try:
        if isinstance(value, int | str):
            return int(value)
    except ValueError:
        pass  # "1e3" and "8.0" are integers, too
    number = float(value)
    if not number.is_integer():
        raise ValueError
    return int(number)
