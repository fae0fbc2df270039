"""What a user can choose about the suites that are scored while a model trains."""

from dataclasses import dataclass
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError

SuiteName = Literal["mlm", "fill", "pll", "blimp"]


@dataclass(frozen=True)
class EvaluateConfig:
    """Suites at validations, in their fast form; see docs/evaluation.md."""

    suites: tuple[SuiteName, ...] = setting(
        (), "suites to score at validations: mlm, fill, pll, blimp"
    )
    every_validations: int = setting(1, "validations from one scoring of the suites to the next")
    blimp: str | None = setting(
        None, "folder of minimal pairs (JSON lines) for the suite blimp", is_path=True
    )

    def __post_init__(self) -> None:
        if self.every_validations < 1:
            raise ConfigError("every_validations", self.every_validations, "must be at least 1")
        if ("blimp" in self.suites) != (self.blimp is not None):
            rule = "and evaluate.suites belong together: the suite blimp needs its folder"
            raise ConfigError("blimp", self.blimp, rule, "Give both, or neither.")
