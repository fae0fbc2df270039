"""What a user can choose about rows."""

from dataclasses import dataclass
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError

MIN_ROW_LENGTH = 8

PairKind = Literal["next", "order"]


@dataclass(frozen=True)
class DataConfig:
    """How text is cut into rows."""

    max_seq_length: int = setting(128, "longest segment in tokens, special tokens included")
    special_tokens: bool = setting(True, "put every segment between [CLS] and [SEP]")
    packed: bool = setting(True, "let several short segments share a row")
    pairs: PairKind | None = setting(
        None,
        "make every segment [CLS] A [SEP] B [SEP] and learn whether B follows A: half of the time "
        "it is from another document (next) or the two are swapped (order)",
    )

    def __post_init__(self) -> None:
        if self.max_seq_length < MIN_ROW_LENGTH:
            rule = f"must be at least {MIN_ROW_LENGTH}"
            raise ConfigError("max_seq_length", self.max_seq_length, rule, "128 is usual.")
        if self.pairs is not None and not self.special_tokens:
            rule = "needs [CLS] and [SEP], which data.special_tokens = False leaves out"
            raise ConfigError("pairs", self.pairs, rule, "Leave out one of the two.")

    @property
    def extra_slots(self) -> int:
        """Slots of a segment that hold no text: [CLS] and [SEP], or one [SEP] more in a pair."""
        if self.pairs is not None:
            return 3
        return 2 if self.special_tokens else 0
