"""Which examples make which step, and the tensors of a step.

An epoch's batches are a pure function of (seed, epoch). R examples, the longest of L tokens,
T = R L, W targets.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.attention_context import AttentionContext, context_from_lengths
from maskwright.data.counter_rng import Purpose, derive_keys
from maskwright.data.permutation import permute
from maskwright.finetuning.examples import Examples
from maskwright.tokenizer.template import ModelInput

_BUCKET = 32  # batches among which examples are sorted by length


@dataclass(frozen=True)
class InputBatch:
    """Inputs of similar lengths, padded. input_ids, token_type_ids: int64 [T]."""

    input_ids: Tensor
    token_type_ids: Tensor
    context: AttentionContext

    def to(self, device: torch.device) -> "InputBatch":
        """The same batch on `device`."""
        ids, types = self.input_ids.to(device), self.token_type_ids.to(device)
        return InputBatch(ids, types, self.context.to(device))


def plan_epoch(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """The examples of each step: shuffled, then sorted by length within buckets.

    So that a batch holds examples of similar lengths, which are chance otherwise; the batches are
    shuffled once more. Every example is in one batch, and none but one batch is smaller.
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
    """The examples of each of so many steps, epoch after epoch."""
    epochs = (plan_epoch(lengths, batch_size, seed, epoch) for epoch in itertools.count())
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), num_steps):
        yield batch.tolist()


def plan_scoring(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """All examples, similar lengths together, at most `batch_tokens` when padded, if one fits."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[number] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def collate(inputs: Sequence[ModelInput], pad_id: int) -> InputBatch:
    """Inputs as one padded batch; their token types are 0 in the padding."""
    lengths = [len(one.ids) for one in inputs]
    longest = max(lengths)
    ids = np.full((len(inputs), longest), pad_id, np.int64)
    types = np.zeros((len(inputs), longest), np.int64)
    for row, one in enumerate(inputs):
        ids[row, : lengths[row]] = one.ids
        types[row, : lengths[row]] = one.type_ids
    return InputBatch(
        torch.from_numpy(ids).flatten(),
        torch.from_numpy(types).flatten(),
        context_from_lengths(lengths),
    )


def find_wanted(examples: Examples, numbers: Sequence[int], row_length: int) -> Tensor | None:
    """[W] places in [T] of the tokens with targets, or None where texts have them."""
    if examples.places is None:
        return None
    wanted = [
        row * row_length + place
        for row, number in enumerate(numbers)
        for place in examples.places[number]
    ]
    return torch.tensor(wanted, dtype=torch.int64)


def find_targets(examples: Examples, numbers: Sequence[int]) -> Tensor:
    """The targets of a batch: [R], [R, K], or [W] of tokens."""
    if isinstance(examples.targets, list):
        flat = [target for number in numbers for target in examples.targets[number]]
        return torch.tensor(flat, dtype=torch.int64)
    return torch.from_numpy(examples.targets[np.asarray(numbers)])
