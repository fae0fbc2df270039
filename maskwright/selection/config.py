"""What `prepare` keeps of a text: the `select` section of a configuration."""

from dataclasses import dataclass

from maskwright.config import section, setting
from maskwright.errors import ConfigError

_CONFIDENCE = 0.65
_NO_SHARES = {"min_words", "max_words", "min_mean_word", "max_mean_word", "max_symbols"}


@dataclass(frozen=True)
class QualityLimits:
    """Limits of the rules of quality; 0 switches a rule off.

    Values are those of Gopher (Rae et al. 2021, table A1) and, for the shares of lines, of FineWeb
    (Penedo et al. 2024). A word is what stands between blanks or, of scripts that have none, a
    character.
    """

    min_words: int = setting(50, "words in a document, at least")
    max_words: int = setting(100_000, "words in a document, at most")
    min_mean_word: float = setting(3.0, "mean length of words, at least; where letters are sounds")
    max_mean_word: float = setting(10.0, "mean length of words, at most")
    max_symbols: float = setting(0.1, "number signs and ellipses for each word, at most")
    max_digits: float = setting(0.2, "share of characters that are digits, at most")
    min_letters: float = setting(0.8, "share of words with a letter in them, at least")
    max_bullets: float = setting(0.9, "share of lines that begin with a bullet, at most")
    max_ellipses: float = setting(0.3, "share of lines that end with an ellipsis, at most")
    max_repeated_lines: float = setting(0.3, "share of lines that were there before, at most")
    max_repeated_line_characters: float = setting(0.2, "share of the text in such lines, at most")
    max_top_ngram: float = setting(
        0.2, "share of the text in its commonest 2-gram, at most; 0.02 less for 3- and 4-grams each"
    )
    max_repeated_ngrams: float = setting(
        0.15, "share of the text in 5-grams that were there before, at most; 0.01 less to 10-grams"
    )
    min_ended_lines: float = setting(
        0.12, "share of lines that end like a sentence, at least; of text with several lines"
    )
    max_short_lines: float = setting(
        0.67, "share of lines below 30 characters (15 of dense scripts), at most; of several"
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise ConfigError(name, value, "must not be negative", "0 switches the rule off.")
            if value > 1 and name not in _NO_SHARES:
                raise ConfigError(name, value, "is a share, 1 at most", f"Try {value / 100:g}.")


@dataclass(frozen=True)
class SelectionConfig:
    """Steps of selection, all off to begin with.

    Raises:
        ConfigError: a value outside its range.
    """

    repair: bool = setting(False, "mend text that was decoded wrongly (ftfy): schÃ¶n -> schön")
    language: str | None = setting(None, "keep this language only: en, ko, … (ISO 639)")
    language_confidence: float = setting(_CONFIDENCE, "probability of that language, at least")
    drop_boilerplate: bool = setting(False, "drop lines about cookies, JavaScript and terms of use")
    quality: bool = setting(False, "drop what is not running text, by select.limits")
    limits: QualityLimits = section(QualityLimits)
    near_duplicates: float = setting(
        0.0, "drop documents whose 5-grams of words are this similar to an earlier one (Jaccard); "
        "0.8, say; 0: never",
    )  # fmt: skip
    decontaminate: tuple[str, ...] = setting(
        (),
        "drop documents that share 13 words in a row with these files of evaluation",
        is_path=True,
    )
    describe: bool = setting(False, "count lengths and languages and keep samples for a report")

    def __post_init__(self) -> None:
        if not 0 < self.language_confidence <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("language_confidence", self.language_confidence, rule, "Try 0.65.")
        if self.near_duplicates and not 0.5 <= self.near_duplicates <= 1:
            rule = "must be between 0.5 and 1, or be 0"
            raise ConfigError("near_duplicates", self.near_duplicates, rule, "Try 0.8.")
        language = self.language
        if language is not None and not (2 <= len(language) <= 3 and language.isalpha()):
            rule = "must be a code of two or three letters"
            raise ConfigError("language", language, rule, "Write en for English.")
        self._check_use()

    def _check_use(self) -> None:
        """Raise if a setting belongs to a step that is off and would be ignored."""
        if self.language is None and self.language_confidence != _CONFIDENCE:
            rule, remedy = "has no effect without select.language", "Name one, such as en."
            raise ConfigError("language_confidence", self.language_confidence, rule, remedy)
        standard = vars(QualityLimits())
        for name, value in () if self.quality else vars(self.limits).items():
            if value != standard[name]:
                rule, remedy = "has no effect without select.quality", "Add select.quality = true."
                raise ConfigError(f"limits.{name}", value, rule, remedy)

    @property
    def identifies_languages(self) -> bool:
        """Whether the language of each document is asked for."""
        return self.language is not None or self.describe

    @property
    def does_anything(self) -> bool:
        """Whether documents go through selection at all."""
        steps = (self.repair, self.language, self.drop_boilerplate, self.quality)
        return any((*steps, self.near_duplicates, self.decontaminate, self.describe))
