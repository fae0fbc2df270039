"""The names of one published architecture for what our encoder has.

A `Family` is a table: their configuration fields and tensors, and ours; its preset holds the fields
that it does not let anybody choose. Reading a configuration returns the `EncoderConfig` that
computes the same function. An `EncoderConfig` belongs to a family exactly if writing it and reading
it back changes nothing, so no list of conditions can disagree with the tables.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from maskwright.config import convert
from maskwright.errors import ConfigError
from maskwright.model.config import (
    EncoderConfig,
    HeadActivation,
    HeadConfig,
    Level,
    Pooling,
    check_sizes,
)
from maskwright.model.presets import PRESETS, Preset

# Fields of a ``config.json``, or arguments of `EncoderConfig`: mappings, because every family has
# other fields, and `EncoderConfig` checks what comes of them.
RawConfig = Mapping[str, Any]
ConfigValues = dict[str, Any]
Names = Mapping[str, str | tuple[str, ...]]

# Other spellings of activations that are the same function.
ACTIVATION_ALIASES = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
}
DECODER_BIAS = "head.decoder.bias"
_TYPES = typing.get_type_hints(EncoderConfig)


@dataclass(frozen=True)
class Field:
    """One field of a published configuration that is one (or several) of ours."""

    theirs: str
    ours: tuple[str, ...]
    default: Any  # of their class, where a file says nothing


def same(ours: str, default: Any) -> Field:
    """Return a field that both call by the same name."""
    return Field(ours, (ours,), default)


@dataclass(frozen=True)
class NativeHead:
    """What one class of transformers puts on the encoder of its family to label texts or tokens.

    Attributes:
        architecture: the class.
        tensors: our module of the head -> the name in their class.
        activation: of the dense layer, or a function of the configuration; None if the head has no
            such layer.
        has_norm: True if a norm follows that layer.
        poolings: the poolings that it knows -> its word for each. The first one applies where a
            file says nothing; a class that has no such field takes the first token.
        dropout_field: its word for the dropout before the output.
        bias: True if the dense layer has one.
        ignored: names of tensors that it does not use, besides those that the family ignores.
    """

    architecture: str
    tensors: Names
    activation: HeadActivation | Callable[[EncoderConfig], HeadActivation] | None
    has_norm: bool = False
    poolings: Mapping[Pooling, str] = field(default_factory=dict)
    dropout_field: str = "classifier_dropout"
    bias: Callable[[EncoderConfig], bool] = lambda config: True
    ignored: tuple[str, ...] = ()

    def build_config(
        self, config: EncoderConfig, level: Level, num_labels: int, pooling: Pooling, dropout: float
    ) -> HeadConfig:
        """Return the configuration of our head that computes the same."""
        activation = self.activation(config) if callable(self.activation) else self.activation
        return HeadConfig(
            level=level,
            num_labels=num_labels,
            pooling=pooling,
            activation=activation,
            bias=self.bias(config),
            norm=self.has_norm,
            dropout=dropout,
        )

    def write_config(self, head: HeadConfig) -> ConfigValues:
        """Return the fields of the head in their ``config.json``."""
        fields: ConfigValues = {self.dropout_field: head.dropout}
        if self.poolings:
            fields["classifier_pooling"] = self.poolings[head.pooling]
        return fields


@dataclass(frozen=True)
class Family:
    """One published architecture.

    Attributes:
        model_type: the word for it in ``config.json``.
        architecture: its masked-language-model class in transformers.
        pair_architecture: its class with a head for pairs of texts as well, if it has one; a file
            that names this class holds that head.
        preset: holds all that `fields` and `read_more` do not set; None if they set everything.
        fields: fields that are copied in both directions.
        tensors: our module or tensor name -> the name in their class; several of theirs are the
            equal row blocks of one of ours; ``*`` is the number of the layer.
        accepts: their fields of which we can compute these values only.
        at_least: our fields with the least value that their class works with.
        tied_bias: their name for the decoder's bias where the decoder is tied. Where it is not,
            they keep a parameter of this name as well, and use it for nothing.
        repeats_bias: whether a tied decoder's bias is stored under both names, because older
            versions of the class read the second one.
        since: the first version of transformers that computes `config` from the folder; found by
            `transformers_versions`, a retired benchmark. Empty: transformers has no such class.
        row_offset: how many rows of theirs come before the first of our tensor of this name.
        constants: tensors that are not learned, but that their class looks for or that a file
            may hold: name -> value.
        renamed: older names in files: a pattern -> its replacement.
        fused: (after that) one name for several tensors stacked by rows -> their names.
        ignored: names (``*`` is anything) that the masked language model does not use.
        write_more, read_more: what a table cannot express.
        classifiers: its classes that label texts and tokens; without one, ours is written.
    """

    model_type: str
    architecture: str
    preset: Preset | None
    fields: tuple[Field, ...]
    tensors: Names
    pair_architecture: str = ""
    accepts: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    tied_bias: str = ""
    repeats_bias: bool = False
    since: Callable[[EncoderConfig], str] = lambda config: ""
    row_offset: Callable[[str, EncoderConfig], int] = lambda ours, config: 0
    constants: Callable[[EncoderConfig], Mapping[str, Tensor]] = lambda config: {}
    renamed: Mapping[str, str] = field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    write_more: Callable[[EncoderConfig], ConfigValues] = lambda config: {}
    read_more: Callable[[RawConfig, ConfigValues], ConfigValues] = lambda raw, values: {}
    classifiers: Mapping[Level, NativeHead] = field(default_factory=dict)

    @property
    def fixed(self) -> ConfigValues:
        """Our fields that this architecture fixes, with their values."""
        preset = PRESETS[self.preset] if self.preset else {}
        chosen = {name for entry in self.fields for name in entry.ours}
        chosen.add("global_attn_every_n_layers")  # which `layer_types` says layer by layer
        return {name: value for name, value in preset.items() if name not in chosen}

    def as_classifier(self, head: NativeHead) -> "Family":
        """Return the family of the class with `head`, whose encoder has the same names."""
        encoder = {ours: theirs for ours, theirs in self.tensors.items() if ours.startswith("enc")}
        ignored = (name for name in self.ignored if "pooler" not in name)
        return dataclasses.replace(
            self,
            architecture=head.architecture,
            pair_architecture="",
            tensors={**encoder, **head.tensors},
            tied_bias="",
            ignored=(*ignored, *head.ignored),
        )

    @property
    def prefix(self) -> str:
        """The first part of the names of the encoder's tensors, such as ``bert.``."""
        name = self.tensors["encoder.embeddings.word"]
        return (name if isinstance(name, str) else name[0]).partition(".")[0] + "."

    def as_encoder(self) -> "Family":
        """Return the family of the class without a head, whose names lack `prefix`."""

        def strip(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
            if isinstance(names, str):
                return names.removeprefix(self.prefix)
            return tuple(name.removeprefix(self.prefix) for name in names)

        encoder = {ours: strip(theirs) for ours, theirs in self.tensors.items() if "enc" in ours}
        constants = self.constants
        return dataclasses.replace(
            self,
            architecture=self.architecture.replace("ForMaskedLM", "Model"),
            pair_architecture="",
            tensors=encoder,
            tied_bias="",
            constants=lambda config: {
                name.removeprefix(self.prefix): value for name, value in constants(config).items()
            },
            ignored=tuple(name.removeprefix(self.prefix) for name in self.ignored),
        )

    def name_class(self, config: EncoderConfig) -> str:
        """Return their class for `config`, with all of its heads if there is one."""
        return (config.sentence_pair_head and self.pair_architecture) or self.architecture

    def write_config(self, config: EncoderConfig) -> ConfigValues:
        """Return their ``config.json`` for `config`; a mapping, for its fields differ by family."""
        copied = {entry.theirs: getattr(config, entry.ours[0]) for entry in self.fields}
        return {
            "architectures": [self.name_class(config)],
            "model_type": self.model_type,
            **copied,
            **self.write_more(config),
        }

    def read_config(self, raw: RawConfig) -> EncoderConfig:
        """Return the architecture that their ``config.json`` describes.

        Raises:
            ConfigError: a field has a wrong value, or one that we cannot compute.
        """
        values: ConfigValues = self.fixed
        for entry in self.fields:
            value = raw.get(entry.theirs)
            value = entry.default if value is None else value
            for ours in entry.ours:
                values[ours] = read_value(value, ours, entry.theirs)
        check_sizes(values)
        for name, least in self.at_least.items():
            if values[name] < least:
                raise ConfigError(name, values[name], f"must be at least {least} in {self.preset}")
        for name, accepted in self.accepts.items():
            value = raw.get(name)
            if value is not None and value not in accepted:
                rule = f"is not supported for model_type {self.model_type}"
                raise ConfigError(name, value, rule, f"Only {accepted[0]} is.")
        if self.pair_architecture:
            classes = raw.get("architectures")
            has_head = isinstance(classes, list) and self.pair_architecture in classes
            values["sentence_pair_head"] = has_head
        if self.preset:
            values["model_type"] = self.model_type
            values.setdefault("layer_types", ("full_attention",) * values["num_hidden_layers"])
        values.update(self.read_more(raw, values))
        return EncoderConfig(**values)

    def native_names(self, ours: str, config: EncoderConfig) -> tuple[str, ...]:
        """Return their names for the row blocks of our tensor `ours`."""
        if ours == DECODER_BIAS and self.tied_bias and config.tie_word_embeddings:
            return (self.tied_bias,)
        parts = ours.split(".")
        layer = next((part for part in parts if part.isdigit()), "")
        pattern = ".".join("*" if part.isdigit() else part for part in parts)
        module, _, kind = pattern.rpartition(".")
        whole = pattern in self.tensors
        names, ending = (self.tensors[pattern if whole else module], "" if whole else "." + kind)
        names = (names,) if isinstance(names, str) else names
        return tuple(name.replace("*", layer) + ending for name in names)


def read_value(value: Any, ours: str, theirs: str) -> Any:
    """Return a value of their field `theirs`, checked against the type of our field `ours`."""
    if ours.endswith("_act") and isinstance(value, str):
        value = ACTIVATION_ALIASES.get(value, value)
    return convert(value, _TYPES[ours], theirs)
