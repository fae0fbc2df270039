"""Configuration of objectives: the section ``objective``."""

from dataclasses import dataclass

from maskwright.config import setting
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.errors import ConfigError
from maskwright.objectives.registry import DEFAULT, OBJECTIVES


@dataclass(frozen=True)
class ObjectiveConfig:
    """Masked language modeling, or replaced-token detection (Clark et al., "ELECTRA", 2020)."""

    name: str = setting(
        DEFAULT,
        "mlm: predict masked tokens; rtd: detect which tokens a small generator replaced (ELECTRA)",
    )
    discriminator_weight: float = setting(
        50.0, "rtd: weight of the discriminator's mean loss; the generator's weight is 1"
    )
    generator_share: float = setting(
        0.25, "rtd: width of the generator relative to the discriminator; usual are 1/4 to 1/2"
    )
    disentangled_embeddings: bool = setting(
        False,
        "rtd: the discriminator does not train the shared embeddings and adds its own (DeBERTa-v3)",
    )

    def __post_init__(self) -> None:
        names = [name for name, entry in OBJECTIVES.items() if entry.switch is None]
        if self.name not in names:
            raise ConfigError("name", self.name, f"must be one of {', '.join(names)}")
        if self.discriminator_weight <= 0:
            raise ConfigError(
                "discriminator_weight", self.discriminator_weight, "must be above 0", "Try 50."
            )
        if not 0 < self.generator_share <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("generator_share", self.generator_share, rule, "Try 0.25.")


def choose_name(config: ObjectiveConfig, data: DataConfig, masking: MaskingConfig) -> str:
    """Return the name of a run's objective: by its switch (`Registered.switch`), or configured."""
    sections = {"data": data, "masking": masking}
    switched = [
        name
        for name, entry in OBJECTIVES.items()
        if entry.switch is not None
        for section, _, option in [entry.switch.partition(".")]
        if getattr(sections[section], option)
    ]
    return switched[-1] if switched and config.name == DEFAULT else config.name
