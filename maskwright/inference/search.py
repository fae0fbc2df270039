"""Search: the texts whose vectors are nearest to that of a query."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskwright.errors import InputError
from maskwright.inference.embed import Embedder, Pooling
from maskwright.inference.text_model import split_blocks
from maskwright.runs.find_model import find_model_folder


@dataclass(frozen=True)
class Match:
    """A text that was found, with its number (from 1 on) and the cosine of both vectors."""

    number: int
    text: str
    score: float


def search(
    folder: str | Path,
    queries: str | Iterable[str],
    texts: Iterable[str],
    *,
    top: int = 10,
    pooling: Pooling | None = None,
    batch_tokens: int | None = None,
    device: str | None = None,
) -> list[list[Match]]:
    """Return the texts nearest to each query, the best first, by the cosine of their vectors::

        [found] = search("runs/mine", "food of snails", ["Snails eat leaves.", "It rains."], top=1)

    Texts are read in blocks, so that any number of them may be searched. Of equal scores the
    earlier text is first. Blank texts are counted, and never found.

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        queries: one query or several.
        texts: the texts to search.
        top: the number of texts to find for each query.
        pooling: ``mean`` of all tokens, or ``cls``, the first token; default: as in `Embedder`.
        batch_tokens: the maximum tokens per batch; default: chosen for the device.
        device: the device, such as ``cpu`` or ``cuda``; default: a GPU if there is one.

    Raises:
        InputError: a query is blank, there is no text, or `top`, `pooling`, `batch_tokens` or
            `device` is wrong.
        ModelFolderError: `folder` is not a model folder.
    """
    for name, value in (("top", top), ("batch-tokens", batch_tokens)):
        if value is not None and value < 1:
            raise InputError(f"--{name} = {value} must be at least 1")
    asked = [queries] if isinstance(queries, str) else list(queries)
    if not asked or not all(query.strip() for query in asked):
        raise InputError("a query is missing or blank. Give some words to search for.")
    embed = Embedder(find_model_folder(folder), device, pooling)
    vectors = embed(asked, batch_tokens)
    best: list[list[Match]] = [[] for _ in asked]
    num_texts = 0
    for block in split_blocks(texts):
        kept = [(number, text) for number, text in enumerate(block, num_texts + 1) if text.strip()]
        num_texts += len(block)
        scores = vectors @ embed([text for _, text in kept], batch_tokens).T
        for found, row in zip(best, scores, strict=True):
            nearest = np.argsort(-row, kind="stable")[:top].tolist()
            found += [Match(*kept[place], score=float(row[place])) for place in nearest]
            found.sort(key=lambda match: -match.score)
            del found[top:]
    if not best[0]:
        raise InputError("there is no text to search")
    return best
