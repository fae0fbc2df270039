"""Configuration of rows, masks and mixtures."""

import math
from dataclasses import dataclass
from typing import Literal

from maskwright.config import check_choice, check_numbers, setting
from maskwright.errors import ConfigError

MIN_ROW_LENGTH = 8

PairKind = Literal["next", "order"]

# The import path of each masking strategy, imported when a run begins. To add a strategy, write a
# class (see `maskwright.data.masking.MaskingStrategy`) and add a line here.
STRATEGIES = {
    "tokens": "maskwright.data.masking:TokenMasking",
    "words": "maskwright.data.masking:WordMasking",
    "spans": "maskwright.data.masking:SpanMasking",
}


@dataclass(frozen=True)
class DataConfig:
    """The conversion of text to rows."""

    max_seq_length: int = setting(128, "maximum tokens per segment, special tokens included")
    special_tokens: bool = setting(True, "add [CLS] and [SEP] around every segment")
    packed: bool = setting(True, "pack several short segments into a row")
    pairs: PairKind | None = setting(
        None,
        "format every segment as [CLS] A [SEP] B [SEP] and predict whether B follows A; in half of "
        "the pairs, B is from another document (next) or A and B are swapped (order)",
    )

    def __post_init__(self) -> None:
        check_numbers(self, "max_seq_length", at_least=MIN_ROW_LENGTH, remedy="128 is usual.")
        if self.pairs is not None and not self.special_tokens:
            rule = "requires [CLS] and [SEP], which data.special_tokens = False removes"
            raise ConfigError("pairs", self.pairs, rule, "Remove one of the two.")

    @property
    def special_per_segment(self) -> int:
        """The special tokens of a segment: [CLS], [SEP] and, in a pair, another [SEP]."""
        if self.pairs is not None:
            return 3
        return 2 if self.special_tokens else 0


@dataclass(frozen=True)
class MaskingConfig:
    """The masking rate, the choice of tokens, and their replacements."""

    rate: float = setting(0.15, "share of tokens to mask; special tokens are never masked")
    final_rate: float | None = setting(
        None, "share of tokens to mask at the end, reached linearly from rate; none = constant rate"
    )
    strategy: str = setting(
        "tokens", "tokens, words or spans: mask single tokens, whole words, or spans of tokens"
    )
    span_lengths: Literal["geometric", "uniform"] = setting(
        "geometric", "distribution of span lengths (geometric as in SpanBERT, with p = 0.2)"
    )
    max_span_length: int = setting(10, "maximum tokens per span")
    mask_share: float = setting(0.8, "share of masked tokens that are replaced by [MASK]")
    random_share: float = setting(
        0.1, "share of masked tokens that are replaced by a random token; the rest are unchanged"
    )
    replacement: Literal["uniform", "unigram"] = setting(
        "uniform", "distribution of random tokens: uniform, or token frequency (unigram)"
    )
    causal_share: float = setting(
        0.0,
        "share of steps without masks, in which every token is predicted from the previous ones "
        "(GPT-BERT); requires model.next_token_prediction",
    )
    no_mask_tokens: tuple[str, ...] = setting((), "tokens that are never masked")

    def __post_init__(self) -> None:
        check_numbers(self, "rate", "final_rate", above=0, below=1, remedy="Try 0.15.")
        remedy = "GPT-BERT has 0.5 to 0.94."
        check_numbers(self, "causal_share", at_least=0, below=1, remedy=remedy)
        check_numbers(self, "mask_share", "random_share", at_least=0, at_most=1)
        if self.mask_share + self.random_share > 1 + 1e-9:
            rule = f"and mask_share = {self.mask_share} add up to more than 1"
            remedy = f"Set random_share to at most {1 - self.mask_share:g}."
            raise ConfigError("random_share", self.random_share, rule, remedy)
        check_choice("strategy", self.strategy, STRATEGIES)
        check_numbers(self, "max_span_length", at_least=1)

    def rate_at(self, progress: float) -> float:
        """Return the share of tokens to mask at `progress` (0..1) of the training."""
        final = self.rate if self.final_rate is None else self.final_rate
        return _round(self.rate + (final - self.rate) * min(max(progress, 0.0), 1.0))

    def predicted_share_at(self, progress: float) -> float:
        """Return the share of tokens to predict, on average over masked and causal steps."""
        return self.causal_share + (1 - self.causal_share) * self.rate_at(progress)

    @property
    def highest_rate(self) -> float:
        """The largest rate of the whole run, which sets the size of prediction arrays."""
        return _round(max(self.rate, self.final_rate or 0.0))


def _round(rate: float) -> float:
    """Round to the digits of metrics.jsonl, so that a step's masks can be rebuilt from it."""
    return float(f"{rate:.8g}")


@dataclass(frozen=True)
class MixtureConfig:
    """The weights of several prepared folders; by default, an epoch reads each once.

    A folder is named by its last path component: ``data/wiki`` is wiki.
    """

    weights: tuple[str, ...] = setting(
        (), "share of tokens from each prepared folder: wiki=0.7,books=0.3"
    )
    epochs: tuple[str, ...] = setting(
        (), "instead of weights: passes over each folder per epoch, default 1: books=2"
    )
    temperature: float | None = setting(
        None,
        "instead of weights: T, for shares proportional to tokens^(1/T); a high T evens them out",
    )

    def __post_init__(self) -> None:
        given = self.given
        if len(given) > 1:
            rule = f"cannot be combined with {given[0]}"
            raise ConfigError(given[1], self.show(given[1]), rule, "Remove one of the two.")
        for name in ("weights", "epochs"):
            parse_amounts(name, getattr(self, name))
        check_numbers(self, "temperature", above=0, remedy="5 is usual.")

    @property
    def given(self) -> list[str]:
        """The names of the fields that are set."""
        return [name for name, value in vars(self).items() if value not in ((), None)]

    def show(self, field: str) -> object:
        """Return the value of a field in command-line syntax."""
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
            rule = "must be NAME=NUMBER with a number above 0"
            raise ConfigError(field, entry, rule, "Write wiki=0.7,books=0.3.")
        if name in amounts:
            raise ConfigError(field, entry, f"repeats {name}", "Name it once.")
        amounts[name] = amount
    return amounts
