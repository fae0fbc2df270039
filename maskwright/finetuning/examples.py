"""Examples as model inputs: encoded texts, pairs and tagged sentences.

R examples in a batch, padded to L tokens; T = R L tokens, W words with targets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.finetuning.batches import InputBatch, collate
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.squad import Question
from maskwright.finetuning.table_files import TableRow
from maskwright.tokenizer.template import InputTemplate, ModelInput
from maskwright.tokenizer.token_text import SENTENCE_ENDS
from maskwright.tokenizer.tokenizer import Tokenizer

Row = TableRow | TaggedSentence | Question


@dataclass(frozen=True)
class Examples:
    """N inputs and their targets.

    Attributes:
        inputs: the tokens of each input.
        targets: [N] or [N, K] for texts; for words, a list for each input.
        positions: for words, the positions of the tokens of each input that have targets.
        sentences: for words, the sentences from which the inputs were cut.
        windows: for questions, the texts from which the inputs were cut.
        num_cut: the number of inputs that were longer than `max_length`.
        rows: the examples as read; one tagged sentence may have become several inputs.
    """

    inputs: list[ModelInput]
    targets: NDArray[Any] | list[list[int]]
    positions: list[list[int]] | None = None
    sentences: "Sentences | None" = None
    windows: "Windows | None" = None
    num_cut: int = 0
    rows: Sequence[Row] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def lengths(self) -> list[int]:
        return [len(one.ids) for one in self.inputs]

    def collate(self, numbers: Sequence[int], pad_id: int, device: torch.device) -> "InputBatch":
        """Return the examples at these indices as one padded batch on `device`."""
        batch = collate([self.inputs[number] for number in numbers], pad_id)
        if self.positions is not None:
            length = batch.context.row_length
            flat = [row * length + p for row, n in enumerate(numbers) for p in self.positions[n]]
            batch = replace(batch, output_positions=torch.tensor(flat, dtype=torch.int64))
        return batch.to(device)

    def select_targets(self, numbers: Sequence[int]) -> Tensor:
        """Return the targets of the examples at these indices: [R], [R, K], or [W] for words."""
        if isinstance(self.targets, list):
            flat = [target for number in numbers for target in self.targets[number]]
            return torch.tensor(flat, dtype=torch.int64)
        return torch.as_tensor(self.targets[np.asarray(numbers)])


@dataclass(frozen=True)
class Sentences:
    """Tagged sentences and the inputs that were cut from them.

    Attributes:
        targets: the targets of all words of each sentence.
        owners: for each input, the index of its sentence and those of its words with tokens.
    """

    targets: list[list[int]]
    owners: list[tuple[int, list[int]]]

    def join(self, predictions: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the predictions of all inputs by sentence; 0 for a word without a token."""
        joined = [[0] * len(targets) for targets in self.targets]
        for (sentence, words), found in zip(self.owners, predictions, strict=True):
            for word, prediction in zip(words, found, strict=True):
                joined[sentence][word] = prediction
        return joined


@dataclass(frozen=True)
class Windows:
    """Texts that are asked about, and the inputs that were cut from them.

    Attributes:
        texts: the text of each question.
        parts: for each input, the index of its question, and the characters [W, 2] of its labeled
            tokens; the first one, [CLS], has none.
        may_be_empty: True if a question may have no answer.
    """

    texts: list[str]
    parts: list[tuple[int, NDArray[np.int64]]]
    may_be_empty: bool


def encode_texts(
    texts: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int
) -> tuple[list[ModelInput], int]:
    """Return inputs of one or two texts each, and the number that were cut to `max_length`.

    Special tokens written in a text are recognized, as in transformers.
    """
    template = InputTemplate.of(tokenizer, len(texts[0])) if texts else None
    inputs: list[ModelInput] = []
    num_cut = 0
    for each in texts:
        assert template is not None
        encoded = tokenizer.encode_batch(each, split_special_tokens=False)
        ids = [text.ids.tolist() for text in encoded]
        inputs.append(template.fill(ids, max_length))
        num_cut += len(inputs[-1].ids) < sum(map(len, ids)) + template.num_added
    return inputs, num_cut


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int
) -> tuple[Examples, list[tuple[int, list[int]]]]:
    """Return sentences of words as inputs, and `Sentences.owners`.

    A sentence that is too long becomes several inputs, cut between words. The target of a word
    belongs to its first token.
    """
    template = InputTemplate.of(tokenizer, 1)
    inputs: list[ModelInput] = []
    positions: list[list[int]] = []
    owners: list[tuple[int, list[int]]] = []
    for number, words in enumerate(sentences):
        for piece in cut_words(words, tokenizer, max_length - template.num_added):
            inputs.append(template.fill([piece.ids], max_length))
            positions.append([inputs[-1].first + token for token in piece.first_tokens])
            owners.append((number, piece.words))
    return Examples(inputs, [[] for _ in inputs], positions), owners


@dataclass(frozen=True)
class Piece:
    """Tokens of some words of a sentence, and the position of the first token of each word."""

    ids: list[int]
    words: list[int]
    first_tokens: list[int]


def cut_words(words: Sequence[str], tokenizer: Tokenizer, room: int) -> Iterator[Piece]:
    """Yield the tokens of words, joined by blanks, in pieces of at most `room` tokens.

    A piece ends with a sentence if one ends in its second half, else with a word. A word that the
    tokenizer drops has no token. A word longer than `room` tokens is split.
    """
    text = " ".join(words)
    encoded = tokenizer.encode_with_offsets(text, split_special_tokens=False)
    ends = np.cumsum([len(word) + 1 for word in words])
    # A token may begin with the blank before its word, so its last character identifies the word.
    last = np.maximum(encoded.offsets[:, 1] - 1, encoded.offsets[:, 0])
    word_of = np.searchsorted(ends, last, side="right")
    begin = 0
    ids = encoded.ids.tolist()
    while begin < len(ids):
        end = min(begin + room, len(ids))
        if end < len(ids):
            inside = np.flatnonzero(np.diff(word_of[begin : end + 1])) + 1
            ends = [n for n in inside if words[word_of[begin + n - 1]][-1:] in SENTENCE_ENDS]
            best = ends if ends and 2 * ends[-1] >= room else inside
            end = begin + int(best[-1]) if len(best) else end
        found = word_of[begin:end]
        is_first = np.diff(found, prepend=-1 if begin == 0 else word_of[begin - 1]) != 0
        yield Piece(ids[begin:end], found[is_first].tolist(), np.flatnonzero(is_first).tolist())
        begin = end
