"""Labelled rows and sentences as inputs of a model with their targets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import CorpusError
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.tables import LabelledRow
from maskwright.tokenizer.template import InputTemplate, ModelInput
from maskwright.tokenizer.tokenizer import Tokenizer

TEXT_COLUMNS = ("sentence1", "sentence2")


@dataclass(frozen=True)
class Examples:
    """N inputs and their targets.

    Attributes:
        inputs: tokens of each.
        targets: [N] or [N, K] for texts; of token tasks a list for each input.
        places: for token tasks the tokens of each input that have targets.
        sentences: for token tasks the sentences whose pieces the inputs are.
        num_cut: inputs that were longer than the model takes.
    """

    inputs: list[ModelInput]
    targets: NDArray[Any] | list[list[int]]
    places: list[list[int]] | None = None
    sentences: "Sentences | None" = None
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def lengths(self) -> list[int]:
        return [len(one.ids) for one in self.inputs]


@dataclass(frozen=True)
class Sentences:
    """Tagged sentences, of which inputs hold pieces.

    Attributes:
        targets: of all words of each sentence.
        owners: of each input, which sentence it is of, and the words in it that have tokens.
    """

    targets: list[list[int]]
    owners: list[tuple[int, list[int]]]

    def join(self, answers: Sequence[Sequence[int]]) -> list[list[int]]:
        """The answers to the words of inputs, by sentence; 0 for a word without a token."""
        joined = [[0] * len(targets) for targets in self.targets]
        for (sentence, words), found in zip(self.owners, answers, strict=True):
            for word, answer in zip(words, found, strict=True):
                joined[sentence][word] = answer
        return joined


def read_texts(row: LabelledRow) -> list[str]:
    """The one or two texts of a row.

    Raises:
        CorpusError: one of them is no text.
    """
    texts = [row.values[column] for column in TEXT_COLUMNS if column in row.values]
    for text in texts:
        if not isinstance(text, str):
            raise CorpusError(f"{row.place}: {text!r} is not a text. Correct the line.")
    return texts


def encode_rows(
    rows: Sequence[LabelledRow], labels: Labels, tokenizer: Tokenizer, max_length: int
) -> Examples:
    """Rows of one or two texts as inputs, cut to `max_length` tokens."""
    texts = [read_texts(row) for row in rows]
    inputs, num_cut = encode_texts(texts, tokenizer, max_length)
    return Examples(inputs, labels.encode(rows), num_cut=num_cut)


def encode_texts(
    texts: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int
) -> tuple[list[ModelInput], int]:
    """Inputs of one or two texts each, and how many of them were cut."""
    template = InputTemplate.of(tokenizer, len(texts[0])) if texts else None
    inputs: list[ModelInput] = []
    num_cut = 0
    for each in texts:
        assert template is not None
        ids = [encoded.ids.tolist() for encoded in tokenizer.encode_batch(each)]
        inputs.append(template.fill(ids, max_length))
        num_cut += len(inputs[-1].ids) < sum(map(len, ids)) + template.num_added
    return inputs, num_cut


def encode_sentences(
    sentences: Sequence[TaggedSentence], labels: Labels, tokenizer: Tokenizer, max_length: int
) -> Examples:
    """Tagged words as inputs; the first token of each word has its tag as target.

    Pieces in which no word begins teach nothing and are left out.
    """
    words = [sentence.words for sentence in sentences]
    examples, owners = encode_words(words, tokenizer, max_length)
    assert examples.places is not None
    used = [number for number, (_, chosen) in enumerate(owners) if chosen]
    owners = [owners[number] for number in used]
    numbers = [labels.encode_tags(sentence.tags, sentence.place) for sentence in sentences]
    return replace(
        examples,
        inputs=[examples.inputs[number] for number in used],
        targets=[[numbers[sentence][word] for word in chosen] for sentence, chosen in owners],
        places=[examples.places[number] for number in used],
        sentences=Sentences(numbers, owners),
    )


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int
) -> tuple[Examples, list[tuple[int, list[int]]]]:
    """Sentences of words as inputs, and of each input which sentence and words it holds.

    A sentence that is too long becomes several inputs, cut between words.
    """
    template = InputTemplate.of(tokenizer, 1)
    inputs: list[ModelInput] = []
    places: list[list[int]] = []
    owners: list[tuple[int, list[int]]] = []
    for number, words in enumerate(sentences):
        for piece in cut_words(words, tokenizer, max_length - template.num_added):
            inputs.append(template.fill([piece.ids], max_length))
            places.append([inputs[-1].first + place for place in piece.first_tokens])
            owners.append((number, piece.words))
    return Examples(inputs, [[] for _ in inputs], places), owners


@dataclass(frozen=True)
class Piece:
    """Tokens of some words of a sentence; the first token of each of these `words`."""

    ids: list[int]
    words: list[int]
    first_tokens: list[int]


def cut_words(words: Sequence[str], tokenizer: Tokenizer, room: int) -> Iterator[Piece]:
    """Words as tokens of the text that they are with blanks between, in pieces of at most `room`.

    A word that the tokenizer drops has no token; one that alone is longer than `room` is cut.
    """
    text = " ".join(words)
    encoded = tokenizer.encode_with_offsets(text)
    ends = np.cumsum([len(word) + 1 for word in words])
    # A token may begin with the blank before its word, so its last character decides.
    last = np.maximum(encoded.offsets[:, 1] - 1, encoded.offsets[:, 0])
    word_of = np.searchsorted(ends, last, side="right")
    begin = 0
    ids = encoded.ids.tolist()
    while begin < len(ids):
        end = min(begin + room, len(ids))
        if end < len(ids):
            inside = np.flatnonzero(np.diff(word_of[begin : end + 1]))
            end = begin + int(inside[-1]) + 1 if len(inside) else end
        found = word_of[begin:end]
        is_first = np.diff(found, prepend=-1 if begin == 0 else word_of[begin - 1]) != 0
        yield Piece(ids[begin:end], found[is_first].tolist(), np.flatnonzero(is_first).tolist())
        begin = end
