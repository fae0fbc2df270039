"""What a user can choose about rows."""

from dataclasses import dataclass

from maskwright.config import setting
from maskwright.errors import ConfigError

MIN_ROW_LENGTH = 8


@dataclass(frozen=True)
class DataConfig:
    """How text is cut into rows."""

    max_seq_length: int = setting(128, "longest segment in tokens, special tokens included")
    special_tokens: bool = setting(True, "put every segment between [CLS] and [SEP]")
    packed: bool = setting(True, "let several short segments share a row")

    def __post_init__(self) -> None:
        if self.max_seq_length < MIN_ROW_LENGTH:
            rule = f"must be at least {MIN_ROW_LENGTH}"
            raise ConfigError("max_seq_length", self.max_seq_length, rule, "128 is usual.")

    @property
    def extra_slots(self) -> int:
        """Slots of a segment that hold no text: [CLS] and [SEP]."""
        return 2 if self.special_tokens else 0
