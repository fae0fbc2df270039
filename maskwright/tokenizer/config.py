"""The `tokenizer` section of a configuration."""

from dataclasses import dataclass
from typing import Literal

from maskwright.config import check_numbers, setting
from maskwright.errors import ConfigError
from maskwright.tokenizer.regex_cost import check_pattern

TokenizerKind = Literal["wordpiece", "bpe", "unigram", "character"]


@dataclass(frozen=True)
class TokenizerConfig:
    """Training of a tokenizer, or the path of an existing one.

    Raises:
        ConfigError: a value outside its range.
    """

    kind: TokenizerKind = setting("wordpiece", "algorithm that splits words into tokens")
    vocab_size: int = setting(
        8192, "vocabulary size, rounded up to a multiple of 64; smaller if the text has too few "
        "words",
    )  # fmt: skip
    pattern: str | None = setting(
        None, "regular expression of the parts that tokens are made of, such as atoms or k-mers: "
        "bpe and unigram do not merge across parts, character makes each part a token",
    )  # fmt: skip
    alphabet: str | None = setting(
        None, "the tokens of kind character, such as ACGTN, instead of those of the text"
    )
    lowercase: bool = setting(
        False, "lowercase the text, as bert-base-uncased does (WordPiece then also strips accents)"
    )
    min_frequency: int = setting(2, "smallest frequency of a token in the training sample")
    sample_megabytes: float = setting(100.0, "size of the random sample to train on, in MB of text")
    path: str | None = setting(
        None, "use the tokenizer in this folder instead of training one", is_path=True
    )
    extend_vocab: int = setting(0, "number of new tokens to learn and add to tokenizer.path")
    replace_vocab: int = setting(
        0, "vocabulary size of a new tokenizer, trained on the text, that replaces tokenizer.path"
    )

    def __post_init__(self) -> None:
        least = 256 + 5 if self.kind == "bpe" else 32  # bytes and special tokens
        trained = self.path is None
        if trained and not least <= self.vocab_size <= 1_000_000:
            rule = f"must be between {least} and 1000000 for {self.kind}"
            raise ConfigError("vocab_size", self.vocab_size, rule, "Try 8192.")
        check_numbers(self, "min_frequency", at_least=1)
        self._check_parts()
        if self.sample_megabytes <= 0:
            raise ConfigError("sample_megabytes", self.sample_megabytes, "must be positive")
        check_numbers(self, "extend_vocab", at_least=0, at_most=1_000_000)
        if self.replace_vocab and not least <= self.replace_vocab <= 1_000_000:
            rule = f"must be 0, or between {least} and 1000000 for {self.kind}"
            raise ConfigError("replace_vocab", self.replace_vocab, rule, "Try 8192.")

    def _check_parts(self) -> None:
        if self.pattern is not None:
            if self.kind == "wordpiece":
                rule = "has no effect with kind = wordpiece, whose parts are words"
                raise ConfigError("pattern", self.pattern, rule, "Use bpe, unigram or character.")
            self._check_pattern(self.pattern)
        if self.alphabet is not None:
            if self.kind != "character":
                rule = f"has no effect with kind = {self.kind}"
                raise ConfigError("alphabet", self.alphabet, rule, "Set kind = character.")
            if not self.alphabet or len({*self.alphabet}) < len(self.alphabet):
                rule = "must be different characters"
                raise ConfigError("alphabet", repr(self.alphabet), rule, "Write each once.")

    @staticmethod
    def _check_pattern(pattern: str) -> None:
        from tokenizers import Regex, pre_tokenizers  # late: most configurations have no pattern

        if not pattern:
            raise ConfigError("pattern", "''", "is empty", "Remove it.")
        try:
            pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception as error:  # the library's only class
            rule = f"is not a regular expression: {' '.join(str(error).split())}"
            raise ConfigError("pattern", pattern, rule) from None
        try:
            check_pattern(pattern)
        except ValueError as error:
            rule = f"takes too much time, or cannot be checked: {error}"
            raise ConfigError("pattern", pattern, rule, "Simplify it.") from None

    @property
    def trains(self) -> bool:
        """Whether a tokenizer is trained on the text alone, so that these settings decide."""
        return self.path is None or self.replace_vocab > 0


def check_extension(config: TokenizerConfig) -> None:
    """Raise ConfigError if there is no tokenizer to extend or replace, or both are requested."""
    for name, verb in (("extend_vocab", "extend"), ("replace_vocab", "replace")):
        value = getattr(config, name)
        if value and config.path is None:
            remedy = "Name its folder in tokenizer.path, or a model in init_from."
            raise ConfigError(f"tokenizer.{name}", value, f"needs a tokenizer to {verb}", remedy)
    if config.extend_vocab and config.replace_vocab:
        rule = "cannot be combined with tokenizer.extend_vocab"
        raise ConfigError("tokenizer.replace_vocab", config.replace_vocab, rule, "Remove one.")
