"""Our outputs beside another library's, on real tokens.

B rows of L slots, D width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskwright.attention_context import context_from_lengths
from maskwright.errors import ExportError
from maskwright.model_folder.folder import LoadedModel

# fp32 gives about seven digits, of which a deep model loses two: for logits of up to 10 an
# absolute bound, and for larger ones a relative one.
TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-5
_MOST_LOGITS = 1 << 25  # in one batch: 128 MiB
_MOST_ROWS = 8

# input_ids, attention_mask and, for classifiers, token_type_ids [B, L] -> logits [B, L, V]
Compute = Callable[..., Tensor]


@dataclass(frozen=True)
class PaddedBatch:
    """Rows of ids, filled up with [PAD] to one length."""

    input_ids: Tensor  # [B, L] int64
    lengths: list[int]

    @property
    def attention_mask(self) -> Tensor:
        """[B, L] int64, 1 where there is a token."""
        place = torch.arange(self.input_ids.shape[1])
        return (place < torch.tensor(self.lengths)[:, None]).long()


@dataclass(frozen=True)
class Difference:
    """How far two computations of the same thing are apart.

    Attributes:
        largest: the largest absolute difference of any number.
        allowed: more than that is no rounding.
    """

    what: str
    largest: float
    allowed: float
    num_texts: int
    num_tokens: int

    def check(self, library: str) -> None:
        """Lets pass what rounding explains.

        Raises:
            ExportError: it does not; NaN never passes.
        """
        if not self.largest <= self.allowed:
            raise ExportError(
                f"what {library} computes is not what the model computes: {self.what} differ by up "
                f"to {self.largest:.2g}, and {self.allowed:.2g} is allowed. Nothing was written; "
                "this is a bug in maskwright or in that library."
            )

    def describe(self) -> str:
        """The same as part of a sentence."""
        return (
            f"largest difference of {self.what} {self.largest:.2g} ({self.allowed:.2g} is allowed)"
        )


def batch_rows(rows: Sequence[list[int]], vocab_size: int, pad_id: int) -> Iterator[PaddedBatch]:
    """The rows in batches of mixed lengths, so that there is padding, and of bounded logits."""
    most = _count_rows(rows, vocab_size)
    for first in range(0, len(rows), most):
        yield pad_rows(rows[first : first + most], pad_id)


def batch_by_length(
    rows: Sequence[list[int]], vocab_size: int, pad_id: int
) -> Iterator[tuple[list[int], PaddedBatch]]:
    """Batches of similar lengths, with the numbers of their rows: little padding."""
    most = _count_rows(rows, vocab_size)
    by_length = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    for first in range(0, len(rows), most):
        numbers = by_length[first : first + most]
        yield numbers, pad_rows([rows[number] for number in numbers], pad_id)


def _count_rows(rows: Sequence[list[int]], vocab_size: int) -> int:
    """How many rows of the longest one's length a batch may hold."""
    return max(1, min(_MOST_ROWS, _MOST_LOGITS // (max(map(len, rows)) * vocab_size)))


def pad_rows(rows: Sequence[list[int]], pad_id: int) -> PaddedBatch:
    """One batch of them all."""
    lengths = [len(row) for row in rows]
    ids = torch.full((len(rows), max(lengths)), pad_id)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
    return PaddedBatch(ids, lengths)


@torch.no_grad()
def encode(loaded: LoadedModel, batch: PaddedBatch) -> Tensor:
    """What our encoder makes of a batch: [B, L, D]."""
    context = context_from_lengths(batch.lengths, batch.input_ids.shape[1])
    hidden = loaded.model.encoder(batch.input_ids.flatten(), context)
    return hidden.unflatten(0, batch.input_ids.shape)


@torch.no_grad()
def compare_logits(
    loaded: LoadedModel, batches: Iterable[PaddedBatch], compute: Compute
) -> Difference:
    """`compute` beside our model, on all that is no padding."""
    largest, scale, num_texts, num_tokens = 0.0, 0.0, 0, 0
    for batch in batches:
        real = batch.attention_mask.bool()
        if loaded.model.config.next_token_prediction:
            real[:, 0] = False
        context = context_from_lengths(batch.lengths, batch.input_ids.shape[1])
        places = real.flatten().nonzero()[:, 0]
        ours = loaded.model(batch.input_ids.flatten(), context, places)
        theirs = compute(batch.input_ids, batch.attention_mask)[real]
        largest = _max(largest, (ours - theirs).abs().max().item())
        scale = max(scale, ours.abs().max().item())
        num_texts, num_tokens = num_texts + len(batch.lengths), num_tokens + len(ours)
    allowed = max(TOLERANCE, RELATIVE_TOLERANCE * scale)
    return Difference("logits", largest, allowed, num_texts, num_tokens)


def compare_vectors(ours: Tensor, theirs: Tensor, num_tokens: int) -> Difference:
    """Sentence vectors of length 1 beside one another, [N, D] each."""
    largest = (ours - theirs).abs().max().item()
    return Difference("sentence vectors", largest, TOLERANCE, len(ours), num_tokens)


def _max(a: float, b: float) -> float:
    """The larger one; NaN if one is."""
    return b if b != b or b > a else a
