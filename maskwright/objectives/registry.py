"""The objectives by name, without torch.

To add an objective, write a subclass of `objective.Objective` and add it to `OBJECTIVES`. Its
module is imported when the objective is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        "maskwright.objectives.causal:CausalSteps",
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
