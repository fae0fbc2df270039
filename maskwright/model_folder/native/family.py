"""Tables that map a published architecture's names to those of our encoder.

A `Family` maps configuration fields and tensor names; its preset has the fields that the
architecture fixes. Reading a configuration returns the `EncoderConfig` that computes the same
function. An `EncoderConfig` belongs to a family if and only if it is unchanged after writing and
reading, so there are no separate conditions that could contradict the tables.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from maskwright.config import convert
from maskwright.errors import ConfigError
from maskwright.files import find_stated
from maskwright.model.config import (
    EncoderConfig,
    HeadActivation,
    HeadConfig,
    Level,
    Pooling,
    check_sizes,
)
from maskwright.model.presets import PRESETS, Preset

# Fields of a ``config.json``, or arguments of `EncoderConfig`: mappings, because fields differ by
# family, and `EncoderConfig` checks the values.
RawConfig = Mapping[str, Any]
ConfigValues = dict[str, Any]
Names = Mapping[str, str | tuple[str, ...]]

# Alternative names of the same activations.
ACTIVATION_ALIASES = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
}
DECODER_BIAS = "head.decoder.bias"
# Modules of our classifier heads.
DENSE, NORM, OUTPUT = "head.dense", "head.norm", "head.output"
_BLOCK = (
    "attention.qkv", "attention.output", "attention_norm", "mlp.input", "mlp.output", "mlp_norm",
)  # fmt: skip
_BERT_BASE: ConfigValues = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
_TYPES = typing.get_type_hints(EncoderConfig)


@dataclass(frozen=True)
class Field:
    """A field of a published configuration, and the field or fields of ours that it sets."""

    theirs: str
    ours: tuple[str, ...]
    default: Any  # the default of their class, for files without the field


def same(**defaults: Any) -> tuple[Field, ...]:
    """Return fields with the same name in both configurations, and the defaults of their class."""
    return tuple(Field(name, (name,), default) for name, default in defaults.items())


def size_fields(**defaults: Any) -> tuple[Field, ...]:
    """Return the fields of all families; `defaults` override those of BERT's class."""
    return same(**{**_BERT_BASE, **defaults})


def name_blocks(
    layer: str,
    qkv: str | tuple[str, ...],
    output: str,
    attention_norm: str,
    mlp_input: str | tuple[str, ...],
    mlp_output: str,
    mlp_norm: str,
) -> Names:
    """Return the entries of `Family.tensors` for the modules of a block, below `layer`."""
    theirs = (qkv, output, attention_norm, mlp_input, mlp_output, mlp_norm)
    return {
        f"encoder.blocks.*.{ours}": f"{layer}.{names}"
        if isinstance(names, str)
        else tuple(f"{layer}.{name}" for name in names)
        for ours, names in zip(_BLOCK, theirs, strict=True)
    }


def name_head(dense: str, norm: str, decoder: str) -> Names:
    """Return the entries for a head as BERT's."""
    return {"head.transform.dense": dense, "head.transform.norm": norm, "head.decoder": decoder}


@dataclass(frozen=True)
class NativeHead:
    """The classifier head of a class of transformers.

    Attributes:
        architecture: the name of the class.
        tensors: our module of the head -> the name in their class.
        activation: the activation of the dense layer, or a function of the configuration; None if
            there is no dense layer.
        has_norm: True if a norm follows that layer.
        poolings: each supported pooling -> its name in their class. The first is the default; a
            class without the field uses the first token.
        dropout_field: their name of the dropout before the output.
        bias: True if the dense layer has a bias.
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
        """Return the configuration of our head that computes the same function."""
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
        model_type: its name in ``config.json``.
        architecture: its masked-language-model class in transformers.
        pair_architecture: its class with an additional head for pairs of texts, if there is one; a
            file with this class holds that head.
        preset: the preset of all fields that `fields` and `read_more` do not set, if any.
        fields: fields that are copied in both directions.
        older: their fields -> older names of them in ``config.json``.
        tensors: our module or tensor name -> the name in their class; several of their names are
            the equal row blocks of one of our tensors; ``*`` is the index of the layer.
        accepts: their fields -> the only values that we can compute.
        at_least: our fields -> the minimum in their class.
        tied_bias: their name of the bias of a tied decoder. With an untied decoder, they also have
            a parameter of this name, which is unused.
        repeats_bias: True if a tied decoder's bias is stored under both names, because older
            versions of the class read the second one.
        since: the first version of transformers that computes `config` from the folder, as measured
            by a retired benchmark. Empty: transformers has no such class.
        code: the repository of the hub with the code of its class, if transformers has none.
        row_offset: the number of their rows before the first row of our tensor of this name.
        row_order: for each row of our tensor of this name its row in theirs; None: the same order.
        constants: tensors without training that their class expects or a file may hold: name ->
            value.
        renamed: older names in files: a pattern -> its replacement.
        fused: (applied after `renamed`) the name of several tensors stacked by rows -> their names.
        ignored: tensor names (``*`` matches any) that the masked language model does not use.
        write_more, read_more: conversions that a table cannot express.
        classifiers: its classifier classes by level; without one, maskwright's own is written.
    """

    model_type: str
    architecture: str
    preset: Preset | None
    fields: tuple[Field, ...]
    tensors: Names
    pair_architecture: str = ""
    older: Mapping[str, str] = field(default_factory=dict)
    accepts: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    tied_bias: str = ""
    repeats_bias: bool = False
    since: Callable[[EncoderConfig], str] = lambda config: ""
    code: str = ""
    row_offset: Callable[[str, EncoderConfig], int] = lambda ours, config: 0
    row_order: Callable[[str, EncoderConfig], Tensor | None] = lambda ours, config: None
    constants: Callable[[EncoderConfig], Mapping[str, Tensor]] = lambda config: {}
    renamed: Mapping[str, str] = field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    write_more: Callable[[EncoderConfig], ConfigValues] = lambda config: {}
    read_more: Callable[[RawConfig, ConfigValues], ConfigValues] = lambda raw, values: {}
    classifiers: Mapping[Level, NativeHead] = field(default_factory=dict)

    @property
    def fixed(self) -> ConfigValues:
        """Our fields whose values this architecture fixes, with the values."""
        preset = PRESETS[self.preset] if self.preset else {}
        chosen = {name for entry in self.fields for name in entry.ours}
        chosen.add("global_attn_every_n_layers")  # `layer_types` replaces it
        return {name: value for name, value in preset.items() if name not in chosen}

    def as_classifier(self, head: NativeHead) -> "Family":
        """Return the family of the classifier class with `head`, with the same encoder names."""
        ignored = (name for name in self.ignored if "pooler" not in name)
        return dataclasses.replace(
            self,
            architecture=head.architecture,
            pair_architecture="",
            tensors={**self.encoder_tensors, **head.tensors},
            tied_bias="",
            ignored=(*ignored, *head.ignored),
        )

    @property
    def encoder_tensors(self) -> Names:
        """The entries of `tensors` that do not belong to a head."""
        return {ours: names for ours, names in self.tensors.items() if ours.startswith("encoder.")}

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

        constants = self.constants
        return dataclasses.replace(
            self,
            architecture=self.architecture.replace("ForMaskedLM", "Model"),
            pair_architecture="",
            tensors={ours: strip(theirs) for ours, theirs in self.encoder_tensors.items()},
            tied_bias="",
            constants=lambda config: {
                name.removeprefix(self.prefix): value for name, value in constants(config).items()
            },
            ignored=tuple(name.removeprefix(self.prefix) for name in self.ignored),
        )

    def name_class(self, config: EncoderConfig) -> str:
        """Return the name of their class for `config`, including a head for pairs if possible."""
        return (config.sentence_pair_head and self.pair_architecture) or self.architecture

    def write_config(self, config: EncoderConfig) -> ConfigValues:
        """Return the content of their ``config.json`` for `config`."""
        copied = {entry.theirs: getattr(config, entry.ours[0]) for entry in self.fields}
        return {
            "architectures": [self.name_class(config)],
            "model_type": self.model_type,
            **copied,
            **self.write_more(config),
        }

    def read_config(self, raw: RawConfig) -> EncoderConfig:
        """Return the architecture in their ``config.json``; raise ConfigError for a wrong value."""
        values: ConfigValues = self.fixed
        for entry in self.fields:
            names = (entry.theirs, self.older.get(entry.theirs, entry.theirs))
            name = next((name for name in names if raw.get(name) is not None), entry.theirs)
            value = find_stated(raw, entry.default, name)
            for ours in entry.ours:
                values[ours] = read_value(value, ours, name)
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
            values.setdefault(
                "layer_types", ("full_attention",) * max(0, values["num_hidden_layers"])
            )
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
