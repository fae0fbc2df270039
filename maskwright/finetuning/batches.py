"""Batches: the choice of examples for each, and the padding of their inputs.

The batches of an epoch are a pure function of (seed, epoch). T tokens, W words with targets.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from maskwright.attention_context import AttentionContext, context_from_lengths
from maskwright.data.counter_rng import Purpose, derive_keys
from maskwright.data.permutation import permute
from maskwright.tokenizer.template import ModelInput

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
