"""What is chosen where nothing is said, and what is refused."""

import pytest

from maskwright.config import from_mapping
from maskwright.errors import ConfigError
from maskwright.finetuning.config import FinetuneConfig


@pytest.mark.parametrize(
    ("examples", "epochs"), [(500, 20.0), (5000, 6.4), (8000, 4.0), (70_000, 2.0), (10**6, 2.0)]
)
def test_few_examples_are_seen_more_often(examples: int, epochs: float):
    assert FinetuneConfig().resolve(examples, 256).epochs == epochs


@pytest.mark.parametrize(
    ("width", "rate", "decay"),
    [(128, 1e-3, 1.0), (256, 1e-3, 1.0), (768, 1e-4, 0.9), (1024, 6e-5, 0.9)],
)
def test_wide_models_learn_at_lower_rates(width: int, rate: float, decay: float):
    config = FinetuneConfig().resolve(1000, width)
    assert (config.learning_rate, config.layer_decay) == (rate, decay)


def test_what_was_given_stays():
    config = FinetuneConfig(epochs=7.5, learning_rate=0.3, layer_decay=0.5)
    assert config.resolve(1000, 256) == config


@pytest.mark.parametrize("name", ["epochs", "learning_rate"])
def test_nothing_at_all_is_refused(name: str):
    with pytest.raises(ConfigError, match=f"{name} = 0.* must be above 0"):
        from_mapping(FinetuneConfig, {name: 0.0})


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("first_seed", 2**63, "between 0 and 9223372036854775807"),
        ("first_seed", 2**64, "between 0 and 9223372036854775807"),
        ("first_seed", -1, "between 0 and"),
        ("epochs", 1e300, "at most 1000000"),
    ],
)
def test_numbers_without_end_are_refused(name: str, value: float, rule: str):
    with pytest.raises(ConfigError, match=rule) as caught:
        from_mapping(FinetuneConfig, {name: value})
    assert (caught.value.field, caught.value.value) == (name, value)
    from_mapping(FinetuneConfig, {"first_seed": 2**63 - 1, "epochs": 1e6})
