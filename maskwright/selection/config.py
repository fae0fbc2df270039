"""The `select` section of a configuration: the documents that `prepare` keeps."""

from dataclasses import dataclass

from maskwright.config import check_numbers, section, setting
from maskwright.errors import ConfigError

_CONFIDENCE = 0.65
_NO_SHARES = {"min_words", "max_words", "min_mean_word", "max_mean_word", "max_symbols"}


@dataclass(frozen=True)
class QualityLimits:
    """Limits of the quality rules; 0 switches a rule off.

    The defaults are those of Gopher (Rae et al. 2021, table A1) and, for the shares of lines, of
    FineWeb (Penedo et al. 2024). Words are separated by whitespace and punctuation; in scripts
    without blanks every character is a word.
    """

    min_words: int = setting(50, "fewest words in a document")
    max_words: int = setting(100_000, "most words in a document")
    min_mean_word: float = setting(3.0, "smallest mean word length (alphabetic scripts only)")
    max_mean_word: float = setting(10.0, "largest mean word length")
    max_symbols: float = setting(0.1, "most number signs and ellipses per word")
    max_digits: float = setting(0.2, "largest share of characters that are digits")
    min_letters: float = setting(0.8, "smallest share of words that contain a letter")
    max_bullets: float = setting(0.9, "largest share of lines that begin with a bullet")
    max_ellipses: float = setting(0.3, "largest share of lines that end with an ellipsis")
    max_repeated_lines: float = setting(0.3, "largest share of lines that repeat an earlier line")
    max_repeated_line_characters: float = setting(
        0.2, "largest share of characters in repeated lines"
    )
    max_top_ngram: float = setting(
        0.2, "largest share of characters in the most frequent 2-gram (3-gram: 0.02 less, 4-gram: "
        "0.04 less)",
    )  # fmt: skip
    max_repeated_ngrams: float = setting(
        0.15, "largest share of characters in repeated 5-grams (0.01 less per step up to 10-grams)"
    )
    min_ended_lines: float = setting(
        0.12, "smallest share of lines that end like a sentence, in text with several lines"
    )
    max_short_lines: float = setting(
        0.67, "largest share of lines below 30 characters (15 where a character is a syllable or "
        "word), in text with several lines",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise ConfigError(name, value, "must not be negative", "0 switches the rule off.")
            if value > 1 and name not in _NO_SHARES:
                raise ConfigError(name, value, "must be at most 1", f"Try {value / 100:g}.")


@dataclass(frozen=True)
class SelectionConfig:
    """Selection steps, all off by default."""

    repair: bool = setting(False, "repair wrongly decoded text (ftfy): schÃ¶n -> schön")
    language: str | None = setting(None, "keep only documents in this language (ISO 639: en, ko)")
    language_confidence: float = setting(_CONFIDENCE, "smallest probability of that language")
    drop_boilerplate: bool = setting(False, "drop lines about cookies, JavaScript and terms of use")
    quality: bool = setting(False, "drop documents that break the quality rules of select.limits")
    limits: QualityLimits = section(QualityLimits)
    near_duplicates: float = setting(
        0.0, "drop documents at least this similar to an earlier one (Jaccard similarity of word "
        "5-grams, such as 0.8); 0: off",
    )  # fmt: skip
    decontaminate: tuple[str, ...] = setting(
        (),
        "drop documents that share 13 consecutive words with these evaluation files",
        is_path=True,
    )
    describe: bool = setting(False, "count lengths and languages and keep samples for a report")

    def __post_init__(self) -> None:
        check_numbers(self, "language_confidence", above=0, at_most=1, remedy="Try 0.65.")
        if self.near_duplicates and not 0.5 <= self.near_duplicates <= 1:
            rule = "must be 0 or between 0.5 and 1"
            raise ConfigError("near_duplicates", self.near_duplicates, rule, "Try 0.8.")
        language = self.language
        if language is not None and not (2 <= len(language) <= 3 and language.isalpha()):
            rule = "must be a code of two or three letters"
            raise ConfigError("language", language, rule, "Write en for English.")
        # Settings that have no effect because their step is off:
        if self.language is None and self.language_confidence != _CONFIDENCE:
            rule, remedy = "has no effect without select.language", "Set it, for example to en."
            raise ConfigError("language_confidence", self.language_confidence, rule, remedy)
        standard = vars(QualityLimits())
        for name, value in () if self.quality else vars(self.limits).items():
            if value != standard[name]:
                rule, remedy = "has no effect without select.quality", "Add select.quality = true."
                raise ConfigError(f"limits.{name}", value, rule, remedy)

    @property
    def identifies_languages(self) -> bool:
        """Whether the language of each document is needed."""
        return self.language is not None or self.describe

    @property
    def does_anything(self) -> bool:
        """Whether any selection step is on."""
        steps = (self.repair, self.language, self.drop_boilerplate, self.quality)
        return any((*steps, self.near_duplicates, self.decontaminate, self.describe))
