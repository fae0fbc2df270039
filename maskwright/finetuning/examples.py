"""Examples as model inputs, encoded texts, pairs and tagged sentences, and batches of them.

The batches of an epoch are a pure function of (seed, epoch). R examples in a batch, padded to L
tokens; T = R L tokens, W words with targets.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from maskwright.attention_context import AttentionContext, context_from_lengths
from maskwright.data.counter_rng import Purpose, derive_keys
from maskwright.data.permutation import permute
from maskwright.tokenizer.template import InputTemplate, ModelInput
from maskwright.tokenizer.token_text import SENTENCE_ENDS
from maskwright.tokenizer.tokenizer import Tokenizer

_BUCKET = 32  # batches; examples are sorted by length within a bucket


@dataclass(frozen=True)
class InputBatch:
    """Inputs of similar lengths, padded.

    Attributes:
        input_ids, token_type_ids: int64 [T].
        output_positions: int64 [W], the positions in [T] of the words with targets; None for texts.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    context: AttentionContext
    output_positions: Tensor | None = None

    def to(self, device: torch.device) -> "InputBatch":
        """Return the same batch on `device`."""
        tensors = {name: one.to(device) for name, one in vars(self).items() if one is not None}
        return replace(self, **tensors)


def plan_epoch(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Return the examples of each step: shuffled, sorted by length within buckets, shuffled again.

    Each batch holds examples of similar lengths. Every example is in exactly one batch, and at most
    one batch is smaller than the others.
    """
    order = permute(np.arange(len(lengths)), len(lengths), seed, epoch)
    sizes = np.asarray(lengths)
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), _BUCKET * batch_size):
        bucket = order[start : start + _BUCKET * batch_size]
        bucket = bucket[np.argsort(sizes[bucket], kind="stable")]
        batches += [bucket[i : i + batch_size] for i in range(0, len(bucket), batch_size)]
    keys = derive_keys(seed, epoch, Purpose.ROW_ORDER, np.arange(len(batches)))
    return [batches[number] for number in np.argsort(keys, kind="stable")]


def plan_steps(
    lengths: Sequence[int], batch_size: int, num_steps: int, seed: int
) -> Iterator[list[int]]:
    """Yield the examples of each of `num_steps` steps, epoch after epoch."""
    epochs = (plan_epoch(lengths, batch_size, seed, epoch) for epoch in itertools.count())
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), num_steps):
        yield batch.tolist()


def collate(inputs: Sequence[ModelInput], pad_id: int) -> InputBatch:
    """Return inputs as one padded batch; token types are 0 in the padding."""
    ids = [torch.tensor(one.ids) for one in inputs]
    types = [torch.tensor(one.type_ids) for one in inputs]
    return InputBatch(
        pad_sequence(ids, batch_first=True, padding_value=pad_id).flatten(),
        pad_sequence(types, batch_first=True).flatten(),
        context_from_lengths([len(one) for one in ids]),
    )


class Row(Protocol):
    """An example as it was read: a row of a table, a tagged sentence, or a question.

    Attributes:
        place: the file and the line, for messages.
        texts: the texts that a person sees.
        group_texts: the texts that training and validation must not share, the widest first.
    """

    @property
    def place(self) -> str: ...
    @property
    def texts(self) -> list[str]: ...
    @property
    def group_texts(self) -> list[str]: ...


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
