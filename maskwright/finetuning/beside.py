"""A linear model beside a fine-tuned encoder: its logits, the words, and its vectors of before.

Small tables are learned better by a linear model of simple features and the vector of an encoder
than by either (Garg et al., "Beyond Fine-tuning: Few-Sample Sentence Embedding Transfer", 2020).
``MODEL/beside`` holds plain numbers and words, and the encoder as it was before fine-tuning.
Folds choose the weights (`maskwright.finetuning.fit_beside`).
N examples of 1 or 2 texts, K labels, F features of words, D features of vectors.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from maskwright.errors import ModelFolderError
from maskwright.files import read_json, write_json
from maskwright.inference.embed import Embedder
from maskwright.model.masked_lm import EncoderModel
from maskwright.model_folder.classifier_folder import open_pretrained
from maskwright.model_folder.folder import Loaded

FOLDER_NAME = "beside"
_WORDS, _WEIGHTS, _ENCODER = "words.json", "weights.safetensors", "encoder"
_ENCODER_FILES = (
    "config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
_MAX_BYTES = 1 << 30
_TOKEN = re.compile(r"(?u)\b\w+\b")
Texts = Sequence[Sequence[str]]
Sparse = tuple[NDArray[np.int64], NDArray[np.float64]]  # features and their values


@dataclass(frozen=True)
class Words:
    """TF-IDF of a text, as scikit-learn's ``TfidfVectorizer`` computes it, without scikit-learn.

    Attributes:
        terms: the number of each term.
        idf: [F] the inverse document frequency of each term.
        by_characters: True if terms are 1 to 3 characters; False: one word or two.
    """

    terms: Mapping[str, int]
    idf: NDArray[np.float64]
    by_characters: bool

    def describe(self, texts: Sequence[str]) -> Sparse:
        """Return the features of an example; of a pair also what its texts share."""
        parts = [self._weigh(text) for text in texts]
        size = len(self.idf)
        places = [place + number * size for number, (place, _) in enumerate(parts)]
        values = [value for _, value in parts]
        if len(parts) == 2:
            (first, one), (second, other) = parts
            shared, left, right = np.intersect1d(first, second, return_indices=True)
            product = one[left] * other[right]
            places += [shared + 2 * size, np.array([3 * size])]
            values += [product, np.array([product.sum()])]
        return np.concatenate(places).astype(np.int64), np.concatenate(values)

    def _weigh(self, text: str) -> Sparse:
        counts = Counter(term for term in self._cut(text) if term in self.terms)
        places = np.array([self.terms[term] for term in counts], np.int64)
        values = np.array([*counts.values()], np.float64) * self.idf[places]
        return places, values / (np.linalg.norm(values) or 1.0)

    def _cut(self, text: str) -> Iterator[str]:
        if self.by_characters:
            text = re.sub(r"\s\s+", " ", text)
            for size in (1, 2, 3):
                yield from (text[n : n + size] for n in range(len(text) - size + 1))
            return
        words = _TOKEN.findall(text.lower())
        yield from words
        yield from (f"{one} {other}" for one, other in pairwise(words))


@dataclass(frozen=True)
class Weights:
    """The weights of the linear model.

    Attributes:
        encoder: [] the weight of the encoder's logits.
        words: [K, F].
        vectors: [K, D]; D is 0 without vectors.
        bias: [K].
    """

    encoder: NDArray[np.float64]
    words: NDArray[np.float64]
    vectors: NDArray[np.float64]
    bias: NDArray[np.float64]


def describe_beside(model: Path) -> list[str]:
    """Return a line for readers of a model folder without its linear model, if it has one."""
    if not (model / FOLDER_NAME).is_dir():
        return []
    return [
        f"the linear model of words in {model / FOLDER_NAME} is not included: only predict, serve "
        "and Python use it. The card has the score of the encoder alone."
    ]


def compute_vectors(embedder: Embedder, texts: Texts) -> NDArray[np.float64]:
    """Return the features [N, D] of the vectors of the examples.

    For a pair they are the distances of the two in each dimension, and the products.
    """
    flat = embedder([text for each in texts for text in each], prompt_name="").astype(np.float64)
    if len(texts[0]) == 1:
        return flat
    first, second = flat[::2], flat[1::2]
    return np.hstack([np.abs(first - second), first * second])


def open_embedder(loaded: Loaded[EncoderModel]) -> Embedder:
    """Return what computes the vectors: means of all tokens, of any length."""
    parts = loaded.model, loaded.tokenizer, loaded.add_special_tokens
    return Embedder.from_parts(*parts, pooling="mean", normalize=False)


@dataclass(frozen=True)
class Beside:
    """The linear model; `embedder` is None if it uses no vectors."""

    words: Words
    weights: Weights
    embedder: Embedder | None

    def __call__(self, logits: NDArray[np.float32], texts: Texts) -> NDArray[np.float32]:
        """Return the logits [N, K] of the encoder and the linear model together."""
        found = logits.astype(np.float64) * self.weights.encoder + self.weights.bias
        for row, each in zip(found, texts, strict=True):
            places, values = self.words.describe(each)
            row += self.weights.words[:, places] @ values
        if self.embedder is not None:
            found += compute_vectors(self.embedder, texts) @ self.weights.vectors.T
        return found.astype(np.float32)

    def save(self, model: Path, pretrained: Path) -> None:
        """Write ``MODEL/beside``; the encoder's files are copies of those of `pretrained`."""
        folder = model / FOLDER_NAME
        folder.mkdir()
        if self.embedder is not None:
            (folder / _ENCODER).mkdir()
            for pattern in _ENCODER_FILES:
                for path in pretrained.glob(pattern):
                    shutil.copyfile(path, folder / _ENCODER / path.name)
        terms = sorted(self.words.terms, key=lambda term: self.words.terms[term])
        write_json(folder / _WORDS, {"by_characters": self.words.by_characters, "terms": terms})
        tensors = {**vars(self.weights), "idf": self.words.idf}
        packed = {name: np.ascontiguousarray(one) for name, one in tensors.items()}
        save_file(packed, folder / _WEIGHTS)

    @classmethod
    def read(cls, model: Path, device: torch.device) -> "Beside | None":
        """Return the linear model of a model folder, if it has one.

        Raise ModelFolderError if it is damaged.
        """
        folder = model / FOLDER_NAME
        if not folder.is_dir():
            return None
        try:
            found = read_json(folder / _WORDS, _MAX_BYTES)
            tensors = load_file(folder / _WEIGHTS)
            words = Words(
                {str(term): number for number, term in enumerate(found["terms"])},
                tensors.pop("idf"),
                bool(found["by_characters"]),
            )
            weights = Weights(**tensors)
        except Exception as error:  # safetensors' own, OSError, KeyError, TypeError
            rule = f"is damaged ({error}). Train the model again."
            raise ModelFolderError(f"{folder} {rule}") from None
        if not weights.vectors.shape[1]:
            return cls(words, weights, None)
        loaded = open_pretrained(folder / _ENCODER)
        loaded.model.to(device)
        return cls(words, weights, open_embedder(loaded))
