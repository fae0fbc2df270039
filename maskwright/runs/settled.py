"""A run's configuration beside the origins of its values: a value that is given stays.

The layers of a configuration say what was given; no value is compared with a default. Rules change
what nobody gave: the data and the models of a run fix some values, its budget chooses others. All
of them go through `Settled.change`, which refuses to change a value that was given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from maskwright.config import fields_of
from maskwright.errors import ConfigError
from maskwright.runs.config import ConfigLayers, PretrainConfig, is_set

Rule = Literal["data", "model", "budget", "run"]
_NAMES = [info.name for info in fields_of(PretrainConfig)]
# What fixes a value names its file; a name of files can be written in several ways.
_FILES = {info.name for info in fields_of(PretrainConfig) if info.is_path}


@dataclass(frozen=True)
class Settled:
    """A configuration, its layers, and what rules have changed in it.

    Attributes:
        config: the layers merged, with the changes.
        layers: without a layer, all of `config` was given, and its origins are unknown.
        changes: the rule that changed a field last, by dotted name.
        reasons: what the rules decided and why, a line by its subject.
    """

    config: PretrainConfig
    layers: ConfigLayers = field(default_factory=ConfigLayers)
    changes: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(
        cls, recipe: str | None, path: Path | None = None, singly: Mapping[str, Any] | None = None
    ) -> "Settled":
        """Return what a recipe, a YAML file and single values resolve to; raise as `resolve`."""
        layers = ConfigLayers.read(recipe, path, singly or {})
        return cls(layers.resolve(), layers)

    def change(self, config: PretrainConfig, rule: Rule) -> "Settled":
        """Return `config`, which a rule made of this one; raise ConfigError if it changes a value
        that was given.

        None in a file leaves a value to the data and the models.
        """
        changed = [n for n in _NAMES if attrgetter(n)(config) != attrgetter(n)(self.config)]
        for name in changed:
            value = attrgetter(name)(self.config)
            is_open = rule in ("data", "model") and (not is_set(value) or name in _FILES)
            if self.layers.gives(name) and not is_open:
                text = f"(from the {self.layers.find_origin(name)}) contradicts the {rule}, which"
                remedy = "Remove it, or change what contradicts it."
                raise ConfigError(name, value, f"{text} has {attrgetter(name)(config)}", remedy)
        changes = {**self.changes, **dict.fromkeys(changed, rule)}
        return replace(self, config=config, changes=changes)

    def explain(self, subject: str, reason: str) -> "Settled":
        """Return it with the reason of a rule's decision."""
        return replace(self, reasons={**self.reasons, subject: reason})

    def list_origins(self) -> dict[str, list[str]]:
        """Return the fields that are not defaults by the origin of their values."""
        found: dict[str, list[str]] = {}
        for name in _NAMES if self.layers != ConfigLayers() else ():
            origin = self.changes.get(name) or self.layers.find_origin(name)
            if origin != "default":
                found.setdefault(origin, []).append(name)
        return found
