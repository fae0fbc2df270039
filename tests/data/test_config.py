from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.errors import ConfigError


def test_rows_that_are_too_short_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"max_seq_length = 7 must be at least 8\. 128 is usual"):
        DataConfig(max_seq_length=7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0.0}, "rate = 0.0 must be between 0 and 1. Try 0.15."),
        ({"rate": 1.0}, "rate = 1.0 must be"),
        ({"final_rate": -0.1}, "final_rate = -0.1 must be"),
        ({"mask_share": 1.2}, "mask_share = 1.2 must be"),
        ({"mask_share": 0.9, "random_share": 0.2}, "random_share = 0.2 and mask_share = 0.9 add"),
        ({"max_span_length": 0}, "max_span_length = 0 must be at least 1"),
    ],
)
def test_values_that_break_a_rule(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MaskingConfig(**values)
    assert message in str(caught.value)


def test_the_rate_goes_linearly_from_one_to_the_other() -> None:
    config = MaskingConfig(rate=0.3, final_rate=0.15)
    rates = [config.rate_at(progress) for progress in (-1, 0, 0.5, 1, 2)]
    assert rates == pytest.approx([0.3, 0.3, 0.225, 0.15, 0.15])
    assert config.highest_rate == 0.3
    assert MaskingConfig(rate=0.1, final_rate=0.2).highest_rate == 0.2
    assert MaskingConfig(rate=0.2).rate_at(0.7) == 0.2
    # As metrics.jsonl has it, from where `inspect` takes it.
    assert MaskingConfig(rate=0.123456789).rate_at(0.5) == 0.12345679
    assert MaskingConfig(rate=0.123456789).highest_rate == 0.12345679


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0, 1))
def test_no_rate_is_above_the_highest(first: float, last: float, progress: float) -> None:
    config = MaskingConfig(rate=first, final_rate=last)
    assert config.rate_at(progress) <= config.highest_rate + 1e-12
