"""The way back from an architecture to the section ``model`` of a configuration that states it.

So a run that begins with a model that exists has a configuration as complete as any other: what
is resolved from it is the architecture of that model.
"""

import dataclasses
from typing import Any

from maskwright.model.config import (
    EncoderConfig,
    ModelConfig,
    alternate_layers,
)
from maskwright.model.presets import PRESETS, Preset


def state_architecture(config: EncoderConfig) -> ModelConfig:
    """A configuration that leaves nothing to its preset, and is resolved to `config`.

    Ids of special tokens are the tokenizer's to say; fields that have no effect are left out.
    """
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    stated: dict[str, Any] = {name: v for name, v in vars(config).items() if name in names}
    del stated["attention_backend"]  # how to compute is the run's business
    if config.positions != "rotary":
        del stated["rope_theta"], stated["local_rope_theta"]
    if not config.head_transform and not config.prediction_head_size:
        del stated["head_act"], stated["head_bias"]
    for every in range(1, config.num_hidden_layers + 1):
        if config.layer_types == alternate_layers(config.num_hidden_layers, every):
            del stated["layer_types"]
            stated["global_attn_every_n_layers"] = every
            break
    return ModelConfig(preset=_choose_preset(config), **stated)


def _choose_preset(config: EncoderConfig) -> Preset:
    """The one of the model's own name, or the nearest."""

    def count_differences(preset: Preset) -> int:
        chosen = PRESETS[preset].items()
        return sum(getattr(config, name, value) != value for name, value in chosen)

    named: list[Preset] = [preset for preset in PRESETS if preset == config.model_type]
    return named[0] if named else min(PRESETS, key=count_differences)
