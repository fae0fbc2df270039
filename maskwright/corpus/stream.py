"""Read, clean, deduplicate and split a corpus.

The split into training and validation is by the fingerprint of a text, so a document is on the same
side in every run, corpus and order. Adding text moves nothing, and a larger fraction contains the
smaller one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from maskwright.corpus.clean import clean_text
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Document, Source
from maskwright.corpus.fingerprints import fingerprint_text
from maskwright.corpus.readers.dispatch import read_source
from maskwright.corpus.sources import find_sources
from maskwright.errors import CorpusError

Split = Literal["train", "valid"]
HELD_OUT = "in corpus.valid_text"  # why a document is dropped
LEAST_VALID_FRACTION = 0.01
_MOST = 0.1
_ENOUGH_BYTES = 80_000  # some 20,000 tokens


def stream_corpus(
    paths: Sequence[str], config: CorpusConfig, counts: Counter[str]
) -> Iterator[tuple[Split, Document]]:
    """Yield all documents that `paths` name, cleaned, each with its side of the split.

    Documents of `config.valid_text` come first and are held out; a document of `paths` that occurs
    there is dropped. The same input yields the same documents in the same order. Memory does not
    grow with the text but for about 70 bytes a document of `config.valid_text`, and of `paths` if
    `config.deduplicate`. All that is dropped or repaired is counted by reason in `counts`:
    documents, lines or files, as the reason says.

    Raises:
        CorpusError: an input cannot be read, or no document is left to train or validate on.
    """
    held_out = set[int]()
    num_train = num_valid = 0
    valid_sources = find_sources(config.valid_text, counts) if config.valid_text else []
    sources = find_sources(paths, counts)
    for fingerprint, document in _read_cleaned(valid_sources, config, counts):
        held_out.add(fingerprint)
        num_valid += 1
        yield "valid", document
    if config.valid_text and not num_valid:
        raise CorpusError(explain_nothing(config.valid_text, "validate", counts))
    given = config.valid_fraction
    share = LEAST_VALID_FRACTION if given is None else given
    fraction = 0.0 if config.valid_text else share
    for fingerprint, document in _read_cleaned(sources, config, counts):
        if fingerprint in held_out:
            counts[HELD_OUT] += 1
        elif is_validation(fingerprint, fraction):
            num_valid += 1
            yield "valid", document
        else:
            num_train += 1
            yield "train", document
    if not num_train:
        if num_valid:
            counts["held out for validation"] = num_valid
        raise CorpusError(explain_nothing(paths, "train", counts))


def _read_cleaned(
    sources: Sequence[Source], config: CorpusConfig, counts: Counter[str]
) -> Iterator[tuple[int, Document]]:
    """Yield cleaned documents that are not empty and, if configured, not duplicates."""
    seen = set[int]()
    for source in sources:
        for document in read_source(source, config, counts):
            text = clean_text(document.text, counts)
            if not text:
                counts["empty"] += 1
                continue
            fingerprint = fingerprint_text(text)
            if config.deduplicate:
                if fingerprint in seen:
                    counts["duplicate"] += 1
                    continue
                seen.add(fingerprint)
            yield fingerprint, document if text == document.text else replace(document, text=text)


def explain_nothing(paths: Sequence[str], purpose: str, counts: Counter[str]) -> str:
    """Return the message for text of which nothing is left, with the reasons."""
    reasons = [f"{reason}: {number}" for reason, number in counts.most_common()]
    why = ", ".join(reasons) or "no documents"
    return f"{', '.join(paths)}: nothing is left to {purpose} on ({why})."


def is_validation(fingerprint: int, valid_fraction: float) -> bool:
    """Return True if the document with this fingerprint is held out for validation."""
    return fingerprint < valid_fraction * 2**64


def choose_valid_fraction(sizes: Iterable[int]) -> float:
    """Return the share to hold out of documents of these sizes (bytes of UTF-8) if the user gives
    none. For more than 8 MB the least share is enough, so no more sizes are asked for.
    """
    most, num_bytes = _ENOUGH_BYTES / LEAST_VALID_FRACTION, 0
    for size in sizes:
        num_bytes += size
        if num_bytes >= most:
            break
    enough = _ENOUGH_BYTES / max(num_bytes, 1)
    return min(_MOST, max(LEAST_VALID_FRACTION, round(enough, 4)))
