"""The steps of selection, one document at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from maskwright.corpus.clean import clean_text
from maskwright.corpus.fingerprints import FingerprintSet, fingerprint_text
from maskwright.extras import import_extra
from maskwright.selection.config import SelectionConfig
from maskwright.selection.contamination import EvaluationTexts
from maskwright.selection.language import LanguageIdentifier
from maskwright.selection.quality import drop_boilerplate, find_fault
from maskwright.selection.tally import Tally
from maskwright.selection.words import Hashes, WordHashes, split_words


class Kept(NamedTuple):
    """A document that is kept, and the hashes of its words where a step asked for them."""

    text: str
    hashes: Hashes | None


class Selector:
    """Cleans, repairs and judges documents.

    Args:
        evaluation: what no document may hold; None: anything goes.
        held_out: fingerprints of documents to validate on, which are not mended, so that whoever
            splits the text knows them, and finds near duplicates of them; None: nothing is mended.

    Raises:
        MissingPackageError: a package that a step needs is not installed.
    """

    def __init__(
        self,
        config: SelectionConfig,
        evaluation: EvaluationTexts | None,
        held_out: FingerprintSet | None = None,
    ) -> None:
        self.config, self.evaluation, self.held_out = config, evaluation, held_out
        self._identify = None
        if config.identifies_languages:
            self._identify = LanguageIdentifier(config.language)
        self._fix = _load_fixer() if config.repair else None
        self._hashes = WordHashes()
        self._hashes_words = bool(config.quality or evaluation or config.near_duplicates)

    def __call__(self, text: str, tally: Tally) -> Kept | None:
        """Return the document as it is kept, or None; `tally` records the reason."""
        tally.read += 1
        text = clean_text(text, tally.repaired)
        if self.held_out is None or fingerprint_text(text) not in self.held_out:
            text = self._mend(text, tally)
        tally.lengths[len(text).bit_length()] += 1
        if not text:
            tally.dropped["empty"] += 1
            return None
        words = split_words(text) if self._hashes_words else []
        hashes = self._hashes.of(words) if self._hashes_words else None
        reason = self._judge(text, words, hashes, tally)
        if reason is not None:
            tally.drop(reason, text)
            return None
        if matched := self._match_evaluation(words, hashes):
            tally.drop("holds text of an evaluation", f"[{matched}] {text}")
            return None
        tally.keep(text)
        return Kept(text, hashes)

    def _mend(self, text: str, tally: Tally) -> str:
        if self._fix is not None and (mended := self._fix(text)) != text:
            tally.repaired["mended by ftfy"] += 1
            text = clean_text(mended, tally.repaired)
        if self.config.drop_boilerplate and (without := drop_boilerplate(text)) != text:
            tally.repaired["boilerplate lines dropped"] += 1
            text = clean_text(without, tally.repaired)
        return text

    def _judge(
        self, text: str, words: list[str], hashes: Hashes | None, tally: Tally
    ) -> str | None:
        config = self.config
        if self._identify is not None:
            language, confidence = self._identify(text)
            tally.languages[language] += 1
            if config.language is not None:
                if language != config.language:
                    return "another language"
                if confidence < config.language_confidence:
                    return "language not certain"
        if hashes is None:
            return None
        if config.quality and (fault := find_fault(text, words, hashes, config.limits)):
            return f"quality: {fault}"
        return None

    def _match_evaluation(self, words: list[str], hashes: Hashes | None) -> str:
        """Return a run of words that occurs in an evaluation, or an empty string."""
        if self.evaluation is None or hashes is None:
            return ""
        found = self.evaluation.find_in(hashes)
        return "" if found is None else " ".join(words[found])


def _load_fixer() -> Callable[[str], str]:
    ftfy: Any = import_extra("ftfy", "selection", "mending of wrongly decoded text")
    # Spelling stays as its writer has it: only what no one wrote is mended.
    settings = ftfy.TextFixerConfig(
        uncurl_quotes=False, fix_latin_ligatures=False, fix_character_width=False, explain=False
    )
    return partial(ftfy.fix_text, config=settings)
