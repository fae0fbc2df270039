"""Configuration of objectives: the sections ``objective`` and ``distill``."""

from dataclasses import dataclass

from maskwright.config import check_numbers, setting
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
        check_numbers(self, "discriminator_weight", above=0, remedy="Try 50.")
        check_numbers(self, "generator_share", above=0, at_most=1, remedy="Try 0.25.")


@dataclass(frozen=True)
class SoftTargetsConfig:
    """A teacher's predictions in the loss (Hinton et al., "Distilling the Knowledge in a Neural
    Network", 2015).
    """

    weight: float = setting(
        0.5, "weight of the teacher's predictions in the loss; that of the labels is 1 - weight"
    )
    temperature: float = setting(
        2.0, "divides the logits of teacher and student: above 1, improbable answers count more"
    )

    def __post_init__(self) -> None:
        check_numbers(self, "weight", above=0, at_most=1, remedy="Try 0.5.")
        check_numbers(self, "temperature", above=0, remedy="Try 2.")

    def check_teacher(self, teacher: object) -> None:
        """Raise ConfigError if a value is set and there is no teacher."""
        for name, value in vars(self).items():
            if teacher is None and value != getattr(type(self)(), name):
                rule = "has no effect without a teacher"
                raise ConfigError(f"distill.{name}", value, rule, "Give --teacher MODEL.")


@dataclass(frozen=True)
class DistillConfig(SoftTargetsConfig):
    """Distillation of masked language models (Sanh et al., "DistilBERT", 2019)."""

    cosine: float | None = setting(
        None,
        "weight of 1 - cosine between the last hidden states of teacher and student; none = 1 if "
        "their widths agree, else 0",
    )
    copy_layers: bool = setting(
        True, "begin with the teacher's embeddings, head and every n-th layer, if all sizes agree"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "cosine", at_least=0)


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
