"""The objectives by name, without torch.

To add an objective, write a module with a class that states it (see `objective.Objective`) and name
it in `OBJECTIVES`. The module is imported when the objective is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maskwright.model.config import GENERATOR


@dataclass(frozen=True)
class Registered:
    """An entry of the registry.

    Attributes:
        home: the class that states the objective, as ``module:Class``; imported when it is used.
        switch: the field of ``data`` or ``masking`` that chooses it in place of ``mlm``; None for
            one that is chosen by ``objective.name``.
        masked_model: the folder of a run with the model that predicts masked tokens, unless it is
            ``model``.
        conflicts: fields that cannot differ from their defaults with it, and why.
    """

    home: str
    switch: str | None = None
    masked_model: str | None = None
    conflicts: Mapping[str, str] = field(default_factory=dict[str, str])


DEFAULT = "mlm"
OBJECTIVES = {
    DEFAULT: Registered("maskwright.objectives.mlm:MaskedTokens"),
    "pairs": Registered("maskwright.objectives.pairs:SentencePairs", "data.pairs"),
    "causal": Registered(
        "maskwright.objectives.causal:CausalSteps",
        "masking.causal_share",
        conflicts={"data.pairs": "in causal steps [CLS] attends to neither of the texts"},
    ),
    "rtd": Registered(
        "maskwright.objectives.rtd:ReplacedTokens",
        masked_model=GENERATOR,
        conflicts={
            "init_from": "it begins with two models of its own",
            "masking.causal_share": "its discriminator attends to both sides",
            "data.pairs": "it judges tokens",
            "train.num_candidates": "tokens are replaced by the whole vocabulary",
            "train.parallel": "the two models share embeddings, which fsdp cannot spread",
        },
    ),
}
