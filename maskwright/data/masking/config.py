"""What a user can choose about masking."""

from dataclasses import dataclass
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError


@dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are hidden, which, and what replaces them."""

    rate: float = setting(0.15, "share of the ordinary tokens that is hidden, at the start")
    final_rate: float | None = setting(
        None, "share at the end of training, reached linearly (none: as at the start)"
    )
    strategy: Literal["tokens", "words", "spans"] = setting(
        "tokens", "hide single tokens, whole words, or spans of neighbouring tokens"
    )
    span_lengths: Literal["geometric", "uniform"] = setting(
        "geometric", "how span lengths are drawn (geometric as in SpanBERT, with p = 0.2)"
    )
    max_span_length: int = setting(10, "longest span in tokens")
    mask_share: float = setting(0.8, "share of the hidden tokens that becomes [MASK]")
    random_share: float = setting(0.1, "share that becomes a random token; the rest stays")
    replacement: Literal["uniform", "unigram"] = setting(
        "uniform", "random tokens: all equally likely, or as frequent as in the corpus"
    )
    causal_share: float = setting(
        0.0,
        "share of the steps that hide nothing but the future: every token is predicted from those "
        "before it (GPT-BERT); needs model.next_token_prediction",
    )
    no_mask_tokens: tuple[str, ...] = setting((), "tokens that are never hidden")

    def __post_init__(self) -> None:
        for name in ("rate", "final_rate"):
            rate = getattr(self, name)
            if rate is not None and not 0 < rate < 1:
                raise ConfigError(name, rate, "must lie between 0 and 1", "Try 0.15.")
        if not 0 <= self.causal_share < 1:
            rule = "must be at least 0 and below 1"
            raise ConfigError("causal_share", self.causal_share, rule, "GPT-BERT has 0.5 to 0.94.")
        for name in ("mask_share", "random_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(name, getattr(self, name), "must lie between 0 and 1")
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ConfigError(
                "random_share",
                self.random_share,
                f"and mask_share = {self.mask_share} add up to more than 1",
                f"At most {1 - self.mask_share:g} is left for random tokens.",
            )
        if self.max_span_length < 1:
            raise ConfigError("max_span_length", self.max_span_length, "must be at least 1")

    def rate_at(self, progress: float) -> float:
        """The share of tokens to hide when `progress` (0..1) of the training is done."""
        final = self.rate if self.final_rate is None else self.final_rate
        return _round(self.rate + (final - self.rate) * min(max(progress, 0.0), 1.0))

    def predicted_share_at(self, progress: float) -> float:
        """The share of tokens to predict, on average over masked and causal steps."""
        return self.causal_share + (1 - self.causal_share) * self.rate_at(progress)

    @property
    def highest_rate(self) -> float:
        """The largest rate of the whole run; arrays of masked positions are sized by it."""
        return _round(max(self.rate, self.final_rate or 0.0))


def _round(rate: float) -> float:
    """To the digits that metrics.jsonl keeps, from which a step's masks can be made again."""
    return float(f"{rate:.8g}")
