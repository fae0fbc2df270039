"""Read, clean and deduplicate a corpus, and the rule that splits it.

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
from maskwright.corpus.documents import Document
from maskwright.corpus.fingerprints import fingerprint_text
from maskwright.corpus.readers.dispatch import read_source
from maskwright.corpus.sources import find_sources
from maskwright.errors import CorpusError

Split = Literal["train", "valid"]
LEAST_VALID_FRACTION = 0.01
_MOST = 0.1
_ENOUGH_BYTES = 80_000  # some 20,000 tokens


def stream_corpus(
    paths: Sequence[str], config: CorpusConfig, counts: Counter[str]
) -> Iterator[Document]:
    """Yield all documents that `paths` name, cleaned, those to hold out among them.

    The same input yields the same documents in the same order. Memory does not grow with the text
    but for about 70 bytes a document if `config.deduplicate`. All that is dropped or repaired is
    counted by reason in `counts`: documents, lines or files, as the reason says.

    Raises:
        CorpusError: an input cannot be read, or no document is left.
    """
    seen, is_empty = set[int](), True
    for source in find_sources(paths, counts):
        for document in read_source(source, config, counts):
            text = clean_text(document.text, counts)
            if not text:
                counts["empty"] += 1
                continue
            if config.deduplicate:
                if (fingerprint := fingerprint_text(text)) in seen:
                    counts["duplicate"] += 1
                    continue
                seen.add(fingerprint)
            is_empty = False
            yield document if text == document.text else replace(document, text=text)
    if is_empty:
        raise CorpusError(explain_nothing(paths, "train", counts))


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
