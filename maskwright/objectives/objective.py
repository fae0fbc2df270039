"""The interface of an objective: what it states once, for every part of a run to read.

A loss is a sum over predictions. Each kind of prediction (masked tokens, pairs of texts …) is a
`Term`, whose predictions are counted before anything is computed. The loss of a step adds up, over
the terms, ``weight * sum of losses / number of predictions``, both of all ranks together. So a sum
of objectives is an objective: it has the terms of both.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.data.batch import Batch
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.distributed.world import World
from maskwright.model.config import EncoderConfig
from maskwright.model.masked_lm import MaskedLanguageModel, Network
from maskwright.objectives.config import ObjectiveConfig

NetworkT = TypeVar("NetworkT", bound=Network)


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
        loss_name, accuracy_name: the names of its means in metrics.jsonl.
        count: returns its number of predictions in a batch.
    """

    weight: float
    loss_name: str
    accuracy_name: str
    count: Callable[[Batch], int]


class Loss(nn.Module, ABC):
    """A module over a network: returns the sums of each term, by the term's name."""

    terms: Mapping[str, Term]

    @abstractmethod
    def forward(self, batch: Batch) -> Mapping[str, TermSums]: ...


@dataclass(frozen=True)
class ScoreLine:
    """How a score of the records is shown; scores that a record lacks are left out.

    Attributes:
        name: its key in a record.
        title: its name in the result of a run and in the model card.
        headline: its name in the one line of a record; empty: it is not in that line.
        baseline: the key of the score that no learning reaches.
        baseline_name: the name of that baseline in a line and above a column.
        baseline_title: what that baseline predicts.
        by_source: it is also shown for each source of a mixture, from ``name/SOURCE``.
    """

    name: str
    title: str
    headline: str = ""
    baseline: str = ""
    baseline_name: str = "baseline"
    baseline_title: str = ""
    by_source: bool = False


@dataclass(frozen=True)
class TrainedModel:
    """One of the models that a run saves.

    Attributes:
        name: how to call it in a message.
        title: how its model card begins.
        folder: its folder in the run directory; None for the folder of every run's model.
        fills_masks: whether it predicts masked tokens.
    """

    name: str
    title: str
    model: Network
    folder: str | None = None
    fills_masks: bool = True


class HeldOut(Protocol):
    """The text of a validation, with pinned masks."""

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """[V], how often each token that can be a label occurs in the training text."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def world(self) -> World: ...

    def read_sources(self, *, pairs: bool = False) -> Mapping[str, Iterator[Batch]]:
        """Return this rank's batches of each source: of single segments, or of pairs."""
        ...


class Objective(ABC, Generic[NetworkT]):
    """What a run trains and how that is scored and shown.

    Attributes:
        scores: what records, results and cards show, in this order.
        counts: keys of numbers in a validation record, and what they are numbers of.
        notes: what the model card says about the scores, formatted with the record.

    Args:
        config, data, masking: sections of the run's configuration.
    """

    scores: ClassVar[tuple[ScoreLine, ...]]
    counts: ClassVar[tuple[tuple[str, str], ...]]
    notes: ClassVar[str]

    def __init__(self, config: ObjectiveConfig, data: DataConfig, masking: MaskingConfig) -> None:
        self.config, self.data, self.masking = config, data, masking

    @abstractmethod
    def build_network(self, architecture: EncoderConfig) -> NetworkT:
        """Return what is trained; its weights are not drawn yet.

        Raises:
            ConfigError: the architecture does not suit the objective.
        """

    @abstractmethod
    def build_loss(self, network: NetworkT) -> Loss:
        """Return the module that computes the loss of a batch."""

    @abstractmethod
    def masked_lm(self, network: NetworkT) -> MaskedLanguageModel:
        """Return the part of the network that predicts masked tokens."""

    @abstractmethod
    def check_held_out(self, held_out: HeldOut) -> None:
        """Raise unless there is something to score.

        Raises:
            ShardError: there is not; names the source.
        """

    @abstractmethod
    def validate(self, network: NetworkT, held_out: HeldOut) -> dict[str, float]:
        """Return the scores of the network, in evaluation mode, for a validation record."""

    @abstractmethod
    def count_flops_per_token(
        self, architecture: EncoderConfig, segment_length: int, masked_share: float
    ) -> float:
        """Return the floating-point operations of a training step per token; see `model.flops`."""

    @abstractmethod
    def describe_parameters(self, architecture: EncoderConfig) -> str:
        """Return where the parameters are, for a dry run."""

    @abstractmethod
    def list_models(self, network: NetworkT) -> list[TrainedModel]:
        """Return the models to save after training, the run's main model last."""
