"""The values that the budget of a run chooses: the size of the model, and what suits its width.

A recipe that states ``model.sizes`` leaves the size to the budget, and with it the values that suit
a width. The budget's layer lies over that recipe and under the user's file and flags. Other recipes
were chosen by the user: of those, ``--model.sizes`` changes nothing but the size.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from maskwright.config import Plain, from_mapping, merge, nested, to_mapping, write_yaml
from maskwright.model.config import SIZE_FIELDS, ModelConfig
from maskwright.pretraining.init_from import shorten_rows
from maskwright.runs.config import DEFAULT_RECIPE, PretrainConfig, is_set, resolve
from maskwright.runs.settled import Settled

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


def may_fill_step(settled: Settled) -> bool:
    """Return True if the budget may choose the tokens of a step."""
    return _is_free(settled, *_BATCH_FIELDS)


def _is_free(settled: Settled, *names: str) -> bool:
    """Return True if the budget may choose fields, which the user has not set, or to none."""
    given = filter(settled.layers.gives, names)
    is_given = any(is_set(attrgetter(name)(settled.config)) for name in given)
    return settled.layers.leaves_size_open and not is_given


def list_open(settled: Settled) -> list[str]:
    """Return the fields that the budget may still choose, dotted."""
    if not settled.config.model.sizes:
        return []
    sized, layers = [f"model.{name}" for name in SIZE_FIELDS], settled.layers
    if not layers.leaves_size_open:
        return sized
    suited = _differences(layers.resolve(), layers.resolve(_suit_width(WIDE)))
    names = [f"{section}.{name}" for section, values in suited.items() for name in values]
    names += [_BATCH_FIELDS[0]] if may_fill_step(settled) else []
    names += [_VOCABULARY_FIELDS[0]] if _is_free(settled, *_VOCABULARY_FIELDS) else []
    return list(dict.fromkeys([*sized, *names]))


def write_open(settled: Settled) -> str:
    """Return the configuration as YAML, with the origins of values that are not defaults.

    Fields that the budget will choose are comments.
    """
    names = list_open(settled)
    origins = {n: origin for origin, named in settled.list_origins().items() for n in named}
    body = "".join(_annotate(write_yaml(settled.config), names, origins))
    if not names:
        return body
    recipe = f"recipe: {settled.layers.recipe}\n" if settled.layers.recipe else ""
    head = "# The budget chooses the fields that are comments; those that you give stay.\n"
    return head + recipe + body


def _annotate(text: str, names: list[str], origins: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of YAML: fields of `names`, dotted, as comments; `origins` behind values."""
    path, is_open, lines = list[str](), False, text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if key := re.match(r"(?P<indent>(?:  )*)(?P<name>\w+):(?P<value> .+)?$", line):
            path = [*path[: len(key["indent"]) // 2], key["name"]]
            name = ".".join(path)
            is_open = name in names
            is_whole = not key["value"] or not following.startswith(f"{key['indent']}  ")
            if is_whole and not is_open and name in origins:
                line = f"{line}  # {origins[name]}"
        yield f"# {line}\n" if is_open else f"{line}\n"


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
    config, layers = settled.config, settled.layers
    config = replace(config, model=set_size(config.model, size.width, size.layers))
    suited = _suit_width(size.width)
    if suited and layers.leaves_size_open:
        changes = _differences(layers.resolve(), layers.resolve(suited))
        config = from_mapping(PretrainConfig, merge(to_mapping(config), changes))
        config = shorten_rows(config, layers.given)  # to the positions of a teacher
    return settled.change(config, "budget")


def set_vocab_size(settled: Settled, vocab_size: int) -> Settled:
    """Return the configuration with a vocabulary size, unless the user set one or a tokenizer."""
    if not _is_free(settled, *_VOCABULARY_FIELDS):
        return settled
    tokenizer = replace(settled.config.tokenizer, vocab_size=vocab_size)
    return settled.change(replace(settled.config, tokenizer=tokenizer), "budget")


def set_batch_tokens(settled: Settled, count: int) -> Settled:
    """Return the configuration with these tokens a step."""
    train = replace(settled.config.train, batch_tokens=count)
    return settled.change(replace(settled.config, train=train), "budget")


def keep_size(settled: Settled, begun: PretrainConfig) -> Settled:
    """Return the configuration with what the budget chose for a run that began."""
    values: Any = to_mapping(begun)
    kept = to_mapping(settled.config)
    for name in list_open(settled):
        section, _, own = name.partition(".")
        kept = merge(kept, nested(name, values[section][own]))
    return settled.change(from_mapping(PretrainConfig, kept), "run")
