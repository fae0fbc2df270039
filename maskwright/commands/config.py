"""The whole configuration of a pretraining run, and where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.config import Plain, from_mapping, merge, read_yaml, section, setting
from maskwright.corpus.config import CorpusConfig
from maskwright.data.config import DataConfig
from maskwright.data.masking.config import MaskingConfig
from maskwright.errors import ConfigError
from maskwright.model.config import ModelConfig
from maskwright.optim.config import OptimConfig
from maskwright.recipes import load_recipe
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.train.config import TrainConfig

DEFAULT_RECIPE = "tiny"


@dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run from raw text (or prepared data) to a model folder."""

    text: tuple[str, ...] = setting((), "files, folders, globs, pydocs, hf:NAME, or prepared data")
    seed: int = setting(0, "names the initial weights, the order of the data and the masks")
    corpus: CorpusConfig = section(CorpusConfig)
    tokenizer: TokenizerConfig = section(TokenizerConfig)
    data: DataConfig = section(DataConfig)
    masking: MaskingConfig = section(MaskingConfig)
    model: ModelConfig = section(ModelConfig)
    optim: OptimConfig = section(OptimConfig)
    train: TrainConfig = section(TrainConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed", self.seed, "must lie between 0 and 2^63 - 1")
        if not (self.train.max_minutes or self.train.max_steps or self.train.max_tokens):
            raise ConfigError(
                "train.max_minutes", None, "and no other budget is set", "Set it to 10, say."
            )


def resolve(
    recipe: str | None = None,
    config_file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> PretrainConfig:
    """A recipe (``tiny`` unless a file is given), a YAML file over it, and single values over both.

    Raises:
        ConfigError: an unknown key, or a value that breaks a rule.
    """
    values: Plain = {}
    if recipe is not None or config_file is None:
        values = load_recipe(recipe or DEFAULT_RECIPE).values
    if config_file is not None:
        from_file = read_yaml(config_file)
        base = from_file.pop("recipe", None)
        if base is not None and recipe is None:
            values = load_recipe(str(base)).values
        values = merge(values, from_file)
    return from_mapping(PretrainConfig, _drop_conflicts(values, overrides or {}))


def _drop_conflicts(values: Plain, overrides: Mapping[str, Any]) -> Plain:
    """Overrides put over `values`; a budget given explicitly replaces the recipe's budgets."""
    budgets = ("max_minutes", "max_steps", "max_tokens")
    given = overrides.get("train", {})
    merged = merge(values, overrides)
    if any(name in given for name in budgets):
        for name in budgets:
            if name not in given:
                merged.get("train", {}).pop(name, None)
    return merged
