"""What a user can choose about rows."""

import math
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


@dataclass(frozen=True)
class MixtureConfig:
    """How much training sees of each of several prepared folders; as it is, each is seen once.

    A folder goes by its last name: ``data/wiki`` is wiki.
    """

    weights: tuple[str, ...] = setting(
        (), "of several prepared folders, the share of the tokens of each: wiki=0.7,books=0.3"
    )
    epochs: tuple[str, ...] = setting(
        (), "or how often an epoch of the mixture passes over each, 1 where not named: books=2"
    )
    temperature: float | None = setting(
        None, "or T for shares as (tokens of the folder)^(1/T): 1 as large as they are, 5 more even"
    )

    def __post_init__(self) -> None:
        given = self.given
        if len(given) > 1:
            rule = f"is given beside {given[0]}, which says the same in another way"
            raise ConfigError(given[1], self.show(given[1]), rule, "Leave one of the two out.")
        for name in ("weights", "epochs"):
            parse_amounts(name, getattr(self, name))
        if self.temperature is not None and not self.temperature > 0:
            raise ConfigError("temperature", self.temperature, "must be above 0", "5 is usual.")

    @property
    def given(self) -> list[str]:
        """Which of the fields say something."""
        return [name for name, value in vars(self).items() if value not in ((), None)]

    def show(self, field: str) -> object:
        """The value of a field as it is given on the command line."""
        value = getattr(self, field)
        return ",".join(value) if isinstance(value, tuple) else value


def parse_amounts(field: str, entries: tuple[str, ...]) -> dict[str, float]:
    """``("wiki=0.7", "books=0.3")`` by name.

    Raises:
        ConfigError: an entry that is not NAME=NUMBER, a number that is not positive, a name twice.
    """
    amounts: dict[str, float] = {}
    for entry in entries:
        name, _, number = entry.rpartition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = math.nan
        if not name or not 0 < amount < math.inf:
            rule = "is not a name and a number above 0"
            raise ConfigError(field, entry, rule, "Write wiki=0.7,books=0.3.")
        if name in amounts:
            raise ConfigError(field, entry, f"names {name} a second time", "Name it once.")
        amounts[name] = amount
    return amounts
