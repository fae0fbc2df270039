"""The objectives by name, and their configuration: the sections ``objective`` and ``distill``.

To add an objective, write a subclass of `objective.Objective` and add it to `OBJECTIVES`. Its
module is imported when the objective is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maskwright.config import check_numbers, setting
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.errors import ConfigError
from maskwright.model.config import GENERATOR


@dataclass(frozen=True)
class Registered:
    """An entry of the registry.

    Attributes:
        home: the class of the objective, as ``module:Class``; imported when it is used.
        switch: the field of ``data`` or ``masking`` that selects it in place of ``mlm``; None if
            ``objective.name`` selects it.
        masked_model: the folder in a run of the model that predicts masked tokens; None: ``model``.
        conflicts: fields that must keep their defaults with this objective, and the reasons.
    """

    home: str
    switch: str | None = None
    masked_model: str | None = None
    conflicts: Mapping[str, str] = field(default_factory=dict[str, str])


DEFAULT = "mlm"
OBJECTIVES = {
    DEFAULT: Registered("maskwright.objectives.mlm:MaskedTokens"),
    "pairs": Registered(
        "maskwright.objectives.pairs:SentencePairs",
        "data.pairs",
        conflicts={"teacher": "a teacher predicts masked tokens only"},
    ),
    "causal": Registered(
        "maskwright.objectives.mlm:CausalSteps",
        "masking.causal_share",
        conflicts={
            "data.pairs": "in causal steps, [CLS] cannot attend to the texts",
            "teacher": "a teacher predicts masked tokens only",
        },
    ),
    "rtd": Registered(
        "maskwright.objectives.rtd:ReplacedTokens",
        masked_model=GENERATOR,
        conflicts={
            "init_from": "rtd trains two new models, a generator and a discriminator",
            "teacher": "rtd trains two new models, a generator and a discriminator",
            "masking.causal_share": "the discriminator attends to both sides",
            "data.pairs": "the discriminator has no head for pairs",
            "train.num_candidates": "replacements are drawn from the whole vocabulary",
            "train.parallel": "the two models share embeddings, which fsdp cannot shard",
        },
    ),
}


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
