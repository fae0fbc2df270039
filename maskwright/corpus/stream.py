"""Reading, cleaning and deduplication of a corpus, and the rule that splits it.

The fingerprint of a document decides between training and validation, so with the same fraction its
split is the same in every run, corpus and order. Adding text changes no other split, and the
validation set of a larger fraction contains that of a smaller one.
"""

import re
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
MOST_VALID = 0.1
ENOUGH_TOKENS = 20_000
_WHOLE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HALF = re.compile(r"[\uac00-\ud7a3]")


def stream_corpus(
    paths: Sequence[str], config: CorpusConfig, counts: Counter[str]
) -> Iterator[Document]:
    """Yield the cleaned documents of both splits that `paths` name.

    The same input yields the same documents in the same order. Memory does not grow with the text,
    except for about 70 bytes per document if `config.deduplicate`. `counts` counts what is dropped
    or repaired by reason: documents, lines or files, as the reason says.

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
    """Return the error message for a corpus without any document left, with the reasons."""
    reasons = [f"{reason}: {number}" for reason, number in counts.most_common()]
    why = ", ".join(reasons) or "no documents"
    return f"{', '.join(paths)}: nothing is left to {purpose} on ({why})."


def is_validation(fingerprint: int, valid_fraction: float) -> bool:
    """Return True if the document with this fingerprint is held out for validation."""
    return fingerprint < valid_fraction * 2**64


def choose_valid_fraction(sizes: Iterable[int]) -> float:
    """Return the default share of documents to hold out, given their sizes in bytes of UTF-8. Stops
    reading sizes at 8 MB, where the smallest share is enough.
    """
    enough, num_bytes = 4 * ENOUGH_TOKENS, 0
    for size in sizes:
        num_bytes += size
        if num_bytes >= enough / LEAST_VALID_FRACTION:
            break
    return min(MOST_VALID, max(LEAST_VALID_FRACTION, round(enough / max(num_bytes, 1), 4)))


def estimate_tokens(text: str) -> float:
    """Return about the number of tokens of a text: one for an ideograph, a kana, two syllables of
    Hangul, or four other characters.
    """
    if text.isascii():
        return len(text) / 4
    return (len(text) + 3 * len(_WHOLE.findall(text)) + len(_HALF.findall(text))) / 4


def raise_valid_fraction(
    fraction: float, enough: float, documents: Iterable[tuple[int, float]]
) -> float:
    """Return the share to hold out if `fraction` yields less than half of `enough` tokens.

    Further documents are held out until there are enough tokens, or the next one is so long that
    there would be more than twice as many.

    Args:
        documents: the fingerprint and the number of tokens of each document.
    """
    beyond = list[tuple[int, float]]()
    num_tokens = 0.0
    for fingerprint, size in documents:
        if is_validation(fingerprint, fraction):
            num_tokens += size
        elif is_validation(fingerprint, MOST_VALID):
            beyond.append((fingerprint, size))
    for fingerprint, size in sorted(beyond) if num_tokens < enough / 2 else ():
        if num_tokens >= enough or num_tokens + size > 2 * enough:
            break
        num_tokens += size
        fraction = (int(fingerprint / 2**64 * 10_000) + 1) / 10_000
    return fraction
