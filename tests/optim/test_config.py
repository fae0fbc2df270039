from typing import Any

import pytest

from maskwright.errors import ConfigError
from maskwright.optim.config import OptimConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate = 0.0 must be above 0"),
        ({"muon_learning_rate": -1.0}, "muon_learning_rate = -1.0 must be above 0"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1 must not be negative"),
        ({"beta2": 1.0}, "beta2 = 1.0 must be in [0, 1)"),
        ({"warmup_share": 1.1}, "warmup_share = 1.1 must be between 0 and 1"),
        ({"initial_share": -0.1}, "initial_share = -0.1 must be between 0 and 1"),
        ({"schedule": "noam", "warmup_share": 0.0}, "warmup_share = 0.0 must be above 0 for noam"),
        ({"schedule": "noam", "final_share": 0.1}, "final_share = 0.1 has no effect"),
        ({"newton_schulz_steps": 0}, "newton_schulz_steps = 0 must be at least 1"),
        ({"warmup_share": 0.6, "decay_share": 0.5}, "decay_share = 0.5 and warmup_share = 0.6"),
    ],
)
def test_values_that_break_a_rule(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OptimConfig(**values)
    assert message in str(caught.value)


def test_the_decay_share_is_for_wsd_alone() -> None:
    assert OptimConfig(schedule="cosine", warmup_share=0.6, decay_share=0.5).warmup_share == 0.6
