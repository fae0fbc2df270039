"""What a user can choose about rows, masks and mixtures."""

import math
from dataclasses import dataclass
from typing import Literal

from maskwright.config import check_choice, setting
from maskwright.errors import ConfigError

MIN_ROW_LENGTH = 8

PairKind = Literal["next", "order"]

# By the name of a masking strategy its class, which is imported when a run begins. A new strategy
# is a class (see `maskwright.data.masking.MaskingStrategy`) and a line here.
STRATEGIES = {
    "tokens": "maskwright.data.masking:TokenMasking",
    "words": "maskwright.data.masking:WordMasking",
    "spans": "maskwright.data.masking:SpanMasking",
}


@dataclass(frozen=True)
class DataConfig:
    """How text is cut into rows."""

    max_seq_length: int = setting(128, "longest segment in tokens, special tokens included")
    special_tokens: bool = setting(True, "put every segment between [CLS] and [SEP]")
    packed: bool = setting(True, "let several short segments share a row")
    pairs: PairKind | None = setting(
        None,
        "make every segment [CLS] A [SEP] B [SEP] and learn whether B follows A: half of the time "
        "B is from another document (next) or the two are swapped (order)",
    )

    def __post_init__(self) -> None:
        if self.max_seq_length < MIN_ROW_LENGTH:
            rule = f"must be at least {MIN_ROW_LENGTH}"
            raise ConfigError("max_seq_length", self.max_seq_length, rule, "128 is usual.")
        if self.pairs is not None and not self.special_tokens:
            rule = "needs [CLS] and [SEP], which data.special_tokens = False leaves out"
            raise ConfigError("pairs", self.pairs, rule, "Remove one of the two.")

    @property
    def extra_slots(self) -> int:
        """The slots of a segment that hold no text: [CLS], [SEP] and, in a pair, another [SEP]."""
        if self.pairs is not None:
            return 3
        return 2 if self.special_tokens else 0


@dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are masked, which, and what replaces them."""

    rate: float = setting(0.15, "share of the ordinary tokens that is masked, at the start")
    final_rate: float | None = setting(
        None, "share at the end of training, reached linearly (none: as at the start)"
    )
    strategy: str = setting(
        "tokens", "tokens, words or spans: mask single tokens, whole words, or spans of neighbors"
    )
    span_lengths: Literal["geometric", "uniform"] = setting(
        "geometric", "how span lengths are drawn (geometric as in SpanBERT, with p = 0.2)"
    )
    max_span_length: int = setting(10, "longest span in tokens")
    mask_share: float = setting(0.8, "share of the masked tokens that becomes [MASK]")
    random_share: float = setting(0.1, "share that becomes a random token; the rest stays")
    replacement: Literal["uniform", "unigram"] = setting(
        "uniform", "random tokens: all equally likely, or as frequent as in the corpus"
    )
    causal_share: float = setting(
        0.0,
        "share of the steps that mask nothing: every token is predicted from those before it "
        "(GPT-BERT); needs model.next_token_prediction",
    )
    no_mask_tokens: tuple[str, ...] = setting((), "tokens that are never masked")

    def __post_init__(self) -> None:
        for name in ("rate", "final_rate"):
            rate = getattr(self, name)
            if rate is not None and not 0 < rate < 1:
                raise ConfigError(name, rate, "must be between 0 and 1", "Try 0.15.")
        if not 0 <= self.causal_share < 1:
            rule = "must be at least 0 and below 1"
            raise ConfigError("causal_share", self.causal_share, rule, "GPT-BERT has 0.5 to 0.94.")
        for name in ("mask_share", "random_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(name, getattr(self, name), "must be between 0 and 1")
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ConfigError(
                "random_share",
                self.random_share,
                f"and mask_share = {self.mask_share} add up to more than 1",
                f"At most {1 - self.mask_share:g} is left for random tokens.",
            )
        check_choice("strategy", self.strategy, STRATEGIES)
        if self.max_span_length < 1:
            raise ConfigError("max_span_length", self.max_span_length, "must be at least 1")

    def rate_at(self, progress: float) -> float:
        """Return the share of tokens to mask when `progress` (0..1) of the training is done."""
        final = self.rate if self.final_rate is None else self.final_rate
        return _round(self.rate + (final - self.rate) * min(max(progress, 0.0), 1.0))

    def predicted_share_at(self, progress: float) -> float:
        """Return the share of tokens to predict, on average over masked and causal steps."""
        return self.causal_share + (1 - self.causal_share) * self.rate_at(progress)

    @property
    def highest_rate(self) -> float:
        """The largest rate of the whole run; arrays of masked positions are sized by it."""
        return _round(max(self.rate, self.final_rate or 0.0))


def _round(rate: float) -> float:
    """Round to the digits of metrics.jsonl, from which a step's masks can be made again."""
    return float(f"{rate:.8g}")


@dataclass(frozen=True)
class MixtureConfig:
    """The share of each of several prepared folders; by default, an epoch reads each once.

    The name of a folder is its last part: ``data/wiki`` is wiki.
    """

    weights: tuple[str, ...] = setting(
        (), "the share of the tokens of each of several prepared folders: wiki=0.7,books=0.3"
    )
    epochs: tuple[str, ...] = setting(
        (), "or how often an epoch of the mixture reads each folder, 1 if not named: books=2"
    )
    temperature: float | None = setting(
        None, "or T for shares as (tokens of the folder)^(1/T): 1 as large as they are, 5 more even"
    )

    def __post_init__(self) -> None:
        given = self.given
        if len(given) > 1:
            rule = f"cannot be combined with {given[0]}"
            raise ConfigError(given[1], self.show(given[1]), rule, "Remove one of the two.")
        for name in ("weights", "epochs"):
            parse_amounts(name, getattr(self, name))
        if self.temperature is not None and not self.temperature > 0:
            raise ConfigError("temperature", self.temperature, "must be above 0", "5 is usual.")

    @property
    def given(self) -> list[str]:
        """The names of the fields that are set."""
        return [name for name, value in vars(self).items() if value not in ((), None)]

    def show(self, field: str) -> object:
        """Return the value of a field as it is written on the command line."""
        value = getattr(self, field)
        return ",".join(value) if isinstance(value, tuple) else value


def parse_amounts(field: str, entries: tuple[str, ...]) -> dict[str, float]:
    """Return the numbers of entries such as ``("wiki=0.7", "books=0.3")`` by name.

    Raises:
        ConfigError: an entry is not NAME=NUMBER, a number is not positive, or a name is repeated.
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
            raise ConfigError(field, entry, f"repeats {name}", "Name it once.")
        amounts[name] = amount
    return amounts
