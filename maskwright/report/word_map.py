"""Frequent words of a model: the nearest others by their embeddings, and a map of them.

The map is the plane of the two largest principal components of the embeddings, after the mean was
subtracted. V tokens, D width, W words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from maskwright.errors import MaskwrightError
from maskwright.tokenizer.token_text import TokenText
from maskwright.tokenizer.tokenizer import Tokenizer

_MOST_WORDS = 1500  # among which the nearest are found
_SHOWN, _NEAREST, _MAPPED = 12, 5, 150
_WIDTH, _HEIGHT, _MARGIN, _LETTER, _LINE = 960, 600, 40, 8.0, 15.0
_NO_WORDS = ("position", "token_type")


@dataclass(frozen=True)
class WordVectors:
    """W words, the most frequent first, and their embeddings [W, D], centered, of length 1."""

    words: Sequence[str]
    vectors: NDArray[np.float32]

    def list_nearest(self) -> Iterator[tuple[str, str]]:
        """Yield some words, from frequent to rare, each with the nearest others and cosines."""
        count = len(self.words)
        places: list[int] = np.geomspace(1, count, _SHOWN).astype(int).tolist()
        for place in dict.fromkeys(places):
            scores = self.vectors @ self.vectors[place - 1]
            scores[place - 1] = -np.inf
            best: list[int] = np.argsort(-scores, kind="stable")[:_NEAREST].tolist()
            best = best[: count - 1]
            yield self.words[place - 1], ", ".join(f"{self.words[n]} {scores[n]:.2f}" for n in best)

    def draw(self) -> str:
        """Return the map of the most frequent words as SVG; words in the way of others are dots."""
        shown = self.vectors[:_MAPPED]
        centered = shown - shown.mean(0)
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        places = left[:, :2] * sizes[:2]
        places = (places - places.min(0)) / (np.ptp(places, 0) + 1e-12)
        rooms = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
        parts, taken = list[str](), list[tuple[float, float, float]]()
        for word, (x, y) in zip(self.words, places * rooms + _MARGIN, strict=False):
            name, end = escape(word), x + 6 + _LETTER * len(word)
            is_free = all(
                end < start or x > stop or abs(y - line) > _LINE for start, stop, line in taken
            )
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{name}</title></circle>'
            )
            if is_free and end < _WIDTH:
                taken.append((x, end, y))
                parts.append(f'<text x="{x + 5:.1f}" y="{y + 4:.1f}">{name}</text>')
        label = "Map of the embeddings of frequent words"
        style = 'font-size="13" font-family="system-ui, sans-serif" fill="#1f4fa3"'
        begin = f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}" {style}>'
        return "\n".join([begin, *parts, "</svg>"])


def read_words(folder: Path, counts: NDArray[np.int64]) -> WordVectors | None:
    """Return the frequent words of a model folder; None if it has too few, or other files.

    Args:
        folder: the model folder.
        counts: how often each token occurs [V].
    """
    try:
        tokenizer = Tokenizer.load(folder)
    except MaskwrightError:  # the other sections of the report do not need it
        return None
    table = _read_table(folder / "model.safetensors", len(counts))
    if table is None:
        return None
    pieces, ids = TokenText(tokenizer), tokenizer.ordinary_ids
    ids = ids[np.argsort(-counts[ids], kind="stable")]
    ids = ids[counts[ids] > 0]
    tokens = dict(zip(ids.tolist(), tokenizer.tokens(ids.tolist()), strict=True))
    if tokenizer.tokens_are_words:
        words = {number: pieces.show(number) for number in tokens}
    else:
        begun = {n: pieces.spell(token) for n, token in tokens.items() if pieces.begins_word(token)}
        words = {n: word for n, text in begun.items() if _is_word(word := text.strip())}
    kept = [*words][:_MOST_WORDS]
    if len(kept) < 3:
        return None
    vectors = table[kept].astype(np.float32)
    vectors -= vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-12
    return WordVectors([words[number] for number in kept], vectors)


def _is_word(text: str) -> bool:
    """Return True for letters, but not for a single one of an alphabet, such as an initial."""
    return text.isalpha() and (len(text) > 1 or text.lower() == text.upper())


def _read_table(path: Path, vocab_size: int) -> NDArray[Any] | None:
    """Return the embeddings [V, D] in a file of weights; None if it has none that NumPy reads."""
    try:
        opened: Any = safe_open(path, framework="numpy")
        with opened as file:
            names: list[str] = sorted(file.keys())
            for name in names:
                is_embedding = "embed" in name or name == "model.encoder.weight"  # of NeoBERT
                if not is_embedding or any(part in name for part in _NO_WORDS):
                    continue
                shape = file.get_slice(name).get_shape()
                if len(shape) == 2 and shape[0] == vocab_size:
                    return file.get_tensor(name)
    except (SafetensorError, OSError, TypeError):
        return None
    return None
