"""What an objective is: sums of losses over several kinds of predictions.

Each kind (hidden tokens, pairs of sentences …) is a `Term`, whose predictions are counted before
anything is computed. The loss of a step adds up, over the terms, ``weight * sum of losses / number
of predictions``, both of all ranks together. So a sum of objectives is an objective: it has the
terms of both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.model.attention_context import AttentionContext


class TermSums(NamedTuple):
    """Sums over the predictions of one term; the caller divides by their global count.

    Attributes:
        loss: [] in nats; 0 without a prediction, never NaN.
        num_correct: [] predictions whose most likely answer is the right one.
    """

    loss: Tensor
    num_correct: Tensor


@dataclass(frozen=True)
class Term:
    """One kind of prediction.

    Attributes:
        weight: of its mean loss in the loss of a step.
        loss_name, accuracy_name: what its means are called in metrics.jsonl.
        count: its predictions in a batch.
    """

    weight: float
    loss_name: str
    accuracy_name: str
    count: Callable[[Batch], int]


@dataclass(frozen=True)
class ObjectiveInputs:
    """The tensors of a batch that objectives read; see `Batch`."""

    input_ids: Tensor
    context: AttentionContext
    masked_positions: Tensor
    masked_labels: Tensor
    masked_draws: Tensor
    token_type_ids: Tensor | None = None
    pair_positions: Tensor | None = None
    pair_labels: Tensor | None = None


class Objective(Protocol):
    """A module over what is trained. It returns the sums of each term, by the term's name."""

    terms: Mapping[str, Term]

    def __call__(self, inputs: ObjectiveInputs) -> Mapping[str, TermSums]: ...


def inputs_of(batch: Batch) -> ObjectiveInputs:
    """The batch as objectives read it."""
    return ObjectiveInputs(
        input_ids=batch.input_ids,
        context=context_of(batch),
        masked_positions=batch.masked_positions,
        masked_labels=batch.masked_labels,
        masked_draws=batch.masked_draws,
        token_type_ids=batch.token_type_ids,
        pair_positions=batch.pair_positions,
        pair_labels=batch.pair_labels,
    )


def context_of(batch: Batch) -> AttentionContext:
    """The batch's segment boundaries as the model wants them."""
    return AttentionContext(
        positions=batch.positions,
        segment_ids=batch.segment_ids,
        cu_seqlens=batch.cu_seqlens,
        max_seqlen=batch.row_length,
        row_length=batch.row_length,
        is_causal=batch.is_causal,
    )
