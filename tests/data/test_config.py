import pytest

from maskwright.data.config import DataConfig
from maskwright.errors import ConfigError


def test_rows_that_are_too_short_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"max_seq_length = 7 must be at least 8\. 128 is usual"):
        DataConfig(max_seq_length=7)


def test_special_tokens_take_two_slots() -> None:
    assert DataConfig().extra_slots == 2
    assert DataConfig(special_tokens=False).extra_slots == 0
