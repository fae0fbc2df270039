"""How one published architecture spells what our encoder is.

A `Family` is a table: which of their configuration fields is which of ours, and which of their
tensors is which of ours. Reading a configuration gives the `EncoderConfig` that computes the
same function; an `EncoderConfig` belongs to a family exactly when writing it and reading it back
changes nothing, so no list of conditions can disagree with the tables.
"""

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from maskwright.config import convert
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, check_sizes

RawConfig = Mapping[str, Any]

# Other spellings of activations that are the same function.
ACTIVATION_ALIASES = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
}
_TYPES = typing.get_type_hints(EncoderConfig)


@dataclass(frozen=True)
class Field:
    """One field of a published configuration that is one (or several) of ours."""

    theirs: str
    ours: tuple[str, ...]
    default: Any  # what their class takes where a file says nothing


def same(ours: str, default: Any) -> Field:
    """A field that both call by the same name."""
    return Field(ours, (ours,), default)


@dataclass(frozen=True)
class Family:
    """One published architecture.

    Attributes:
        model_type: the word for it in ``config.json``.
        architecture: its masked-language-model class in transformers.
        fields: fields that are copied in both directions.
        fixed: fields of ours that it does not let anybody choose.
        accepts: fields of theirs of which we can compute only these values.
        tensors: our module or tensor name -> theirs; several of theirs are the equal row blocks of
            one of ours; ``*`` is the number of the layer.
        ignored: beginnings of tensor names that the masked language model does not use.
        write_more, read_more: what a table cannot say.
        written_twice: their tensor name -> another under which the same values are written.
    """

    model_type: str
    architecture: str
    fields: tuple[Field, ...]
    fixed: Mapping[str, Any]
    tensors: Callable[[EncoderConfig], Mapping[str, str | tuple[str, ...]]]
    accepts: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    write_more: Callable[[EncoderConfig], dict[str, Any]] = lambda config: {}
    read_more: Callable[[RawConfig, dict[str, Any]], dict[str, Any]] = lambda raw, values: {}
    written_twice: Callable[[EncoderConfig], Mapping[str, str]] = lambda config: {}

    def write_config(self, config: EncoderConfig) -> dict[str, Any]:
        """Their ``config.json`` for `config`."""
        copied = {entry.theirs: getattr(config, entry.ours[0]) for entry in self.fields}
        return {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            **copied,
            **self.write_more(config),
        }

    def read_config(self, raw: RawConfig) -> EncoderConfig:
        """The architecture that their ``config.json`` describes.

        Raises:
            ConfigError: a field has a value that is no value, or one that we cannot compute.
        """
        values: dict[str, Any] = dict(self.fixed)
        for entry in self.fields:
            value = raw.get(entry.theirs)
            value = entry.default if value is None else value
            for ours in entry.ours:
                values[ours] = read_value(value, ours, entry.theirs)
        check_sizes(values)
        for name, accepted in self.accepts.items():
            value = raw.get(name)
            if value is not None and value not in accepted:
                rule = f"is not supported for model_type {self.model_type}"
                raise ConfigError(name, value, rule, f"Only {accepted[0]} is.")
        values.update(self.read_more(raw, values))
        return EncoderConfig(**values)

    def native_names(self, ours: str, config: EncoderConfig) -> tuple[str, ...]:
        """Their names for the row blocks of our tensor `ours`."""
        table = self.tensors(config)
        parts = ours.split(".")
        layer = next((part for part in parts if part.isdigit()), "")
        pattern = ".".join("*" if part.isdigit() else part for part in parts)
        module, _, kind = pattern.rpartition(".")
        names, ending = (table[pattern], "") if pattern in table else (table[module], "." + kind)
        names = (names,) if isinstance(names, str) else names
        return tuple(name.replace("*", layer) + ending for name in names)


def read_value(value: Any, ours: str, theirs: str) -> Any:
    """A value of their field `theirs`, checked against the type of our field `ours`."""
    if ours.endswith("_act") and isinstance(value, str):
        value = ACTIVATION_ALIASES.get(value, value)
    return convert(value, _TYPES[ours], theirs)


def read_rope_theta(parameters: Any, name: str, default: Any) -> float:
    """The base of the frequencies in an entry of ``rope_parameters``; only plain rotary ones.

    Raises:
        ConfigError: a scaled or partial variant of rotary positions.
    """
    entries = {} if parameters is None else parameters
    if not isinstance(entries, Mapping):
        raise ConfigError(name, entries, "must hold rope_type and rope_theta")
    for key, value in entries.items():
        if key != "rope_theta" and (key, value) != ("rope_type", "default"):
            raise ConfigError(f"{name}.{key}", value, "is not supported")
    return read_value(entries.get("rope_theta") or default, "rope_theta", f"{name}.rope_theta")
