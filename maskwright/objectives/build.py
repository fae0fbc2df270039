"""Construction of a run's objective from its configuration."""

import pkgutil
from typing import Any

from torch import nn

from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.objectives.config import ObjectiveConfig, choose_name
from maskwright.objectives.objective import Objective
from maskwright.objectives.registry import OBJECTIVES


def build_objective(
    config: ObjectiveConfig, data: DataConfig, masking: MaskingConfig
) -> Objective[Any]:
    """Return the objective that the configuration selects."""
    home = OBJECTIVES[choose_name(config, data, masking)].home
    return pkgutil.resolve_name(home)(config, data, masking)


def count_parameters_of(network: nn.Module) -> int:
    """Return the number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in network.parameters())
