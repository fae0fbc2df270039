from typing import Any

import pytest

from maskwright.errors import ConfigError
from maskwright.tokenizer.config import TokenizerConfig


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("vocab_size", {"vocab_size": 31}),
        ("vocab_size", {"vocab_size": 260, "kind": "bpe"}),
        ("vocab_size", {"vocab_size": 1_000_001}),
        ("min_frequency", {"min_frequency": 0}),
        ("sample_megabytes", {"sample_megabytes": 0.0}),
    ],
)
def test_values_out_of_range(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{field} = "):
        TokenizerConfig(**values)
