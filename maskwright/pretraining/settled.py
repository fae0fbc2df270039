"""A run's configuration beside the layers that it came from: a value that is given stays.

A recipe that states ``model.sizes`` leaves the size to the budget, and with it the values that suit
a width. The budget's layer lies over that recipe and under the user's file and flags. So the layers
say what was given, and no value is compared with a default. Other recipes were chosen by the user:
of those, ``--model.sizes`` changes nothing but the size.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from maskwright.config import Plain, from_mapping, merge, nested, to_mapping, write_yaml
from maskwright.model.config import SIZE_FIELDS, ModelConfig
from maskwright.pretraining.init_from import shorten_rows
from maskwright.runs.config import DEFAULT_RECIPE, ConfigLayers, PretrainConfig, resolve

# From this width on, the values of the recipe `wide` replace those of `auto`.
WIDE, _WIDE_RECIPE, _NARROW_RECIPE = 384, "wide", DEFAULT_RECIPE
_SECTIONS = ("data", "masking", "optim", "train")
_RATES = ("learning_rate", "muon_learning_rate")
_BATCH_FIELDS = ("train.batch_tokens", "train.batch_tokens_schedule")
_VOCABULARY_FIELDS = ("tokenizer.vocab_size", "tokenizer.path")


class Size(NamedTuple):
    """A size with the petaFLOP from which on it pays."""

    least: float
    width: int
    layers: int

    def __str__(self) -> str:
        return f"width {self.width}, layers {self.layers}"


@dataclass(frozen=True)
class Settled:
    """A configuration, and its layers; without layers, all of it was given.

    Attributes:
        config: the layers merged, with what data and models fix.
    """

    config: PretrainConfig
    layers: ConfigLayers = field(default_factory=ConfigLayers)

    @classmethod
    def read(
        cls, recipe: str | None, path: Path | None = None, singly: Mapping[str, Any] | None = None
    ) -> "Settled":
        """Return what a recipe, a YAML file and single values resolve to; raise as `resolve`."""
        layers = ConfigLayers.read(recipe, path, singly or {})
        return cls(layers.resolve(), layers)

    def is_free(self, *names: str) -> bool:
        """Return True if the budget may choose fields, which the user has not set."""
        return self.layers.leaves_size_open and not any(map(self.layers.gives, names))

    @property
    def may_fill_step(self) -> bool:
        """True if the budget may choose the tokens of a step."""
        return self.is_free(*_BATCH_FIELDS)

    def list_open(self) -> list[str]:
        """Return the fields that the budget may still choose, dotted."""
        if not self.config.model.sizes:
            return []
        sized = [f"model.{name}" for name in SIZE_FIELDS]
        if not self.layers.leaves_size_open:
            return sized
        suited = _differences(self.layers.resolve(), self.layers.resolve(_suit_width(WIDE)))
        names = [f"{section}.{name}" for section, values in suited.items() for name in values]
        names += [_BATCH_FIELDS[0]] if self.may_fill_step else []
        names += [_VOCABULARY_FIELDS[0]] if self.is_free(*_VOCABULARY_FIELDS) else []
        return list(dict.fromkeys([*sized, *names]))

    def write(self) -> str:
        """Return the configuration as YAML; fields that the budget will choose are comments."""
        names = self.list_open()
        if not names:
            return write_yaml(self.config)
        recipe = f"recipe: {self.layers.recipe}\n" if self.layers.recipe else ""
        head = "# The budget chooses the fields that are comments; those that you give stay.\n"
        return head + recipe + "".join(_comment_out(write_yaml(self.config), names))


def _comment_out(text: str, names: list[str]) -> Iterator[str]:
    """Yield the lines of YAML, those of these fields, dotted, as comments."""
    section, is_open = "", False
    for line in text.splitlines(keepends=True):
        if key := re.match(r"(?P<indent> *)(?P<name>\w+):", line):
            section = section if key["indent"] else key["name"]
            is_open = f"{section}.{key['name']}" in names
        yield f"# {line}" if is_open else line


def _differences(before: PretrainConfig, after: PretrainConfig) -> dict[str, Plain]:
    """Return the values of `after` that differ, by section."""
    old, new = to_mapping(before), to_mapping(after)
    return {
        section: {n: value for n, value in new[section].items() if value != old[section][n]}
        for section in _SECTIONS
    }


def set_size(model: ModelConfig, width: int, layers: int) -> ModelConfig:
    """Return the model with this size: heads of 64, an MLP three times as wide."""
    return replace(
        model,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=None,
        intermediate_size=3 * width,
    )


def find_recipe(width: int) -> str:
    """Return the recipe whose values go with a width."""
    return _WIDE_RECIPE if width >= WIDE else _NARROW_RECIPE


def scale_rates(width: int) -> dict[str, float]:
    """Return the learning rates that go with a width, if they are not those of its recipe.

    They fall with the width, from those measured at 384 (Yang et al., "Tuning Large Neural Networks
    via Zero-Shot Hyperparameter Transfer", 2022).
    """
    optim = resolve(_WIDE_RECIPE).optim
    factor = WIDE / width
    scaled = {name: float(f"{getattr(optim, name) * factor:.6g}") for name in _RATES}
    return scaled if factor < 1 else {}


@cache
def _suit_width(width: int) -> Plain:
    """Return the values that go with a width, by section; none for those of `auto` itself."""
    if width < WIDE:
        return {}
    wide = to_mapping(resolve(_WIDE_RECIPE))
    suited = {section: dict(wide[section]) for section in _SECTIONS}
    suited["optim"] |= scale_rates(width)
    return suited


def adopt_size(settled: Settled, size: Size) -> Settled:
    """Return the configuration with this size, and with what goes with it unless it was given."""
    config = settled.config
    config = replace(config, model=set_size(config.model, size.width, size.layers))
    layers, suited = settled.layers, _suit_width(size.width)
    if suited and layers.leaves_size_open:
        changes = _differences(layers.resolve(), layers.resolve(suited))
        config = from_mapping(PretrainConfig, merge(to_mapping(config), changes))
        config = shorten_rows(config, layers.given)  # to the positions of a teacher
    return replace(settled, config=config)


def set_vocab_size(settled: Settled, vocab_size: int) -> Settled:
    """Return the configuration with a vocabulary size, unless the user set one or a tokenizer."""
    if not settled.is_free(*_VOCABULARY_FIELDS):
        return settled
    tokenizer = replace(settled.config.tokenizer, vocab_size=vocab_size)
    return replace(settled, config=replace(settled.config, tokenizer=tokenizer))


def set_batch_tokens(settled: Settled, count: int) -> Settled:
    """Return the configuration with these tokens a step."""
    train = replace(settled.config.train, batch_tokens=count)
    return replace(settled, config=replace(settled.config, train=train))


def keep_size(settled: Settled, begun: PretrainConfig) -> Settled:
    """Return the configuration with what the budget chose for a run that began."""
    values: Any = to_mapping(begun)
    kept = to_mapping(settled.config)
    for name in settled.list_open():
        section, _, own = name.partition(".")
        kept = merge(kept, nested(name, values[section][own]))
    return replace(settled, config=from_mapping(PretrainConfig, kept))


def fix_size(settled: Settled) -> Settled:
    """Return the configuration of a run that has its size: the budget chooses no other one."""
    model = replace(settled.config.model, sizes=())
    return replace(settled, config=replace(settled.config, model=model))
