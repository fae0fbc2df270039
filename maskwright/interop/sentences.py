"""The sentences on which a conversion is compared with the model it was made from.

Some were written to be awkward for tokenizers. The others are real text of lengths from a few
tokens to the longest that the model takes: held-out documents of prepared data, or else the
documentation in the Python environment (the corpus ``pydocs``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.corpus.readers.pydocs import read_pydocs
from maskwright.interop.held_out import open_held_out
from maskwright.model_folder.folder import Loaded, LoadedModel

AWKWARD = (
    "The larvae are black and feed on snails.",
    "Naïve cafés, Straßen and ÅNGSTRÖM: 6.02214·10²³ (±0.5 %)",
    "tabs\tand  blanks\nand lines",
    "someone@example.org wrote https://example.org/?q=1&r=2 at 10:45.",
    "Москва, 서울, 東京, ภาษาไทย, ﬁn, 🙂👍🏽",
    "!",
)
NUM_TEXTS = 24
LONGEST = 512  # tokens; longer inputs cost time and show nothing new
_SHORTEST = 4
_CHARACTERS_PER_TOKEN = 20  # more than any real text has


@dataclass(frozen=True)
class Sentences:
    """Texts, and the ids of each as the model reads them; `source` says where they are from."""

    source: str
    texts: list[str]
    rows: list[list[int]]


def choose_sentences(loaded: LoadedModel, data: Path | None, hide_words: bool) -> Sentences:
    """Sentences that the model can read, without special tokens but for the masks.

    Args:
        data: a prepared folder; None for the built-in texts.
        hide_words: whether to put a mask token in the place of a word of each.
    """
    longest = min(loaded.model.config.max_position_embeddings, LONGEST)
    documents = None if data is None else _read_held_out(loaded, data)
    sentences = Sentences("pydocs" if data is None else data.name, [], [])
    for text in choose_texts(loaded, documents):
        shown = _hide_word(text, loaded.tokenizer.mask_token) if hide_words else text
        ids: list[int] = loaded.tokenizer.encode_prompt(shown).ids.tolist()
        row = loaded.wrap(ids)
        if 0 < len(row) <= longest:
            sentences.texts.append(shown)
            sentences.rows.append(row)
    return sentences


def choose_texts(loaded: Loaded[Any], documents: Iterable[str] | None = None) -> Iterator[str]:
    """Awkward texts, then the beginnings of documents, from a few tokens to the model's length.

    Args:
        documents: None for the built-in ones.
    """
    longest = min(loaded.model.config.max_position_embeddings, LONGEST)
    documents = _read_pydocs() if documents is None else documents
    real = _cut(loaded, documents, np.geomspace(_SHORTEST, longest, NUM_TEXTS))
    special = loaded.tokenizer.special_tokens.values()
    for text in (*AWKWARD, *real):
        if not any(token in text for token in special):  # to some libraries no text but the token
            yield text


def _cut(loaded: Loaded[Any], documents: Iterable[str], lengths: Iterable[float]) -> Iterator[str]:
    """The beginning of each document, of about so many tokens as the lengths say in turn."""
    extra = len(loaded.wrap([]))
    for document, length in zip(documents, lengths, strict=False):
        most = max(1, round(length) - extra)
        document = document[: most * _CHARACTERS_PER_TOKEN].strip()
        ends = loaded.tokenizer.encode_prompt(document).offsets[:most, 1]
        yield document[: ends[-1] if len(ends) else 0].strip()


def _hide_word(text: str, mask_token: str) -> str:
    words = text.split(" ")
    words[len(words) // 2] = mask_token
    return " ".join(words)


def _read_pydocs() -> Iterator[str]:
    return (text for _, text in read_pydocs())


def _read_held_out(loaded: LoadedModel, data: Path) -> Iterator[str]:
    store = open_held_out(loaded, data)
    lengths = store.document_lengths
    starts = np.cumsum(lengths) - lengths
    for start, length in islice(zip(starts.tolist(), lengths.tolist(), strict=True), 4 * NUM_TEXTS):
        if length >= _SHORTEST:
            ids = store.tokens(start, start + min(length, 2 * LONGEST))
            yield loaded.tokenizer.decode(ids.tolist())
