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


class Objective(Protocol):
    """A module over what is trained. It returns the sums of each term, by the term's name."""

    terms: Mapping[str, Term]

    def __call__(self, batch: Batch) -> Mapping[str, TermSums]: ...
