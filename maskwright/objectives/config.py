"""What a user can choose about what is learned."""

from dataclasses import dataclass
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError


@dataclass(frozen=True)
class ObjectiveConfig:
    """Masked language modelling, or replaced-token detection (Clark et al., "ELECTRA", 2020)."""

    name: Literal["mlm", "rtd"] = setting(
        "mlm", "guess hidden tokens, or tell which tokens a small generator replaced (ELECTRA)"
    )
    discriminator_weight: float = setting(
        50.0, "rtd: weight of the discriminator's mean loss beside the generator's"
    )
    generator_share: float = setting(
        0.25, "rtd: width of the generator as a share of the discriminator's; 1/4 to 1/2 is usual"
    )

    def __post_init__(self) -> None:
        if self.discriminator_weight <= 0:
            raise ConfigError(
                "discriminator_weight", self.discriminator_weight, "must be above 0", "Try 50."
            )
        if not 0 < self.generator_share <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("generator_share", self.generator_share, rule, "Try 0.25.")
