import pytest

from maskwright.config import from_mapping
from maskwright.errors import ConfigError
from maskwright.preparation.config import PrepareConfig


@pytest.mark.parametrize(
    ("field", "value"), [("shard_megabytes", 0), ("shard_megabytes", 2000), ("workers", -1)]
)
def test_values_out_of_range(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"^{field} = {value}"):
        from_mapping(PrepareConfig, {field: value})
