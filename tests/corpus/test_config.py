import pytest

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("encoding", "cp12520"),
        ("encoding", "base64"),
        ("valid_fraction", -0.1),
        ("valid_fraction", 0.6),
        ("text_field", ""),
        ("max_document_characters", 10),
        ("documents", "paragraph"),
        ("valid_text", ["valid.txt", "-"]),
    ],
)
def test_a_value_outside_its_range_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^corpus.{field} = "):
        from_mapping(CorpusConfig, {field: value}, "corpus.")
