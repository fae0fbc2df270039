"""The interface of an objective, which every part of a run uses.

A loss is a sum over predictions. Each kind of prediction (masked tokens, pairs of texts …) is a
`Term`, whose predictions are counted before the forward pass. The loss of a step is the sum over
the terms of ``weight * sum of losses / number of predictions``, over all ranks. Objectives can be
combined: the combination has the terms of both.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.data.batch import Batch
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.distributed.world import World
from maskwright.errors import ShardError
from maskwright.model.config import EncoderConfig
from maskwright.model.masked_lm import MaskedLanguageModel, Network
from maskwright.objectives.config import OBJECTIVES, ObjectiveConfig, choose_name
from maskwright.objectives.scores import ScoreLine

NetworkT = TypeVar("NetworkT", bound=Network)


@dataclass(frozen=True)
class Term:
    """One kind of prediction.

    Attributes:
        weight: the weight of its mean loss in the loss of a step.
        loss_name, accuracy_name: the names of its mean loss and accuracy in metrics.jsonl.
        count: a function that returns its number of predictions in a batch.
    """

    weight: float
    loss_name: str
    accuracy_name: str
    count: Callable[[Batch], int]


class TermSums(NamedTuple):
    """Sums over the predictions of one term; the caller divides by their global count.

    Attributes:
        loss: [] in nats; 0 if there are no predictions, never NaN.
        num_correct: [] the number of correct predictions.
    """

    loss: Tensor
    num_correct: Tensor


class Loss(nn.Module, ABC):
    """A module around a network that returns the sums of each term by name."""

    terms: Mapping[str, Term]

    @abstractmethod
    def forward(self, batch: Batch) -> Mapping[str, TermSums]: ...


@dataclass(frozen=True)
class TrainedModel:
    """One of the models that a run saves.

    Attributes:
        name: its name in messages.
        title: the heading of its model card.
        folder: its folder in the run directory; None for the default, ``model``.
        fills_masks: True if it predicts masked tokens.
    """

    name: str
    title: str
    model: Network
    folder: str | None = None
    fills_masks: bool = True


class HeldOut(Protocol):
    """The validation text, with pinned masks: `maskwright.pretraining.validation.HeldOutText`."""

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """The count of each possible label in the training text: [V]."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def world(self) -> World: ...

    def read_sources(self, *, pairs: bool = False) -> Mapping[str, Iterator[Batch]]:
        """Return this rank's batches of each source, with single segments or pairs."""
        ...


class Objective(ABC, Generic[NetworkT]):
    """The network, loss, scores and display of a kind of training.

    Attributes:
        scores: the scores in records, results and cards, in this order.
        counts: keys of counts in a validation record, with their descriptions.
        notes: a template about the scores for the model card, formatted with the record.

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
        """Return the network to train, without initialized weights.

        Raises:
            ConfigError: the objective does not support the architecture.
        """

    @abstractmethod
    def build_loss(self, network: NetworkT) -> Loss:
        """Return the module that computes the loss of a batch."""

    @abstractmethod
    def masked_lm(self, network: NetworkT) -> MaskedLanguageModel:
        """Return the part of the network that predicts masked tokens."""

    def check_held_out(self, held_out: HeldOut) -> None:
        """Raise ShardError, which names the source, if one has too little text to score.

        Every objective needs masked tokens in every source.
        """
        for name, batches in held_out.read_sources().items():
            if not any(batch.num_predictions for batch in batches):
                raise ShardError(
                    f"{name} holds too little validation text: none of its tokens is masked. "
                    "Prepare it with a larger corpus.valid_fraction."
                )

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
        """Return parameter counts by component, for a dry run."""

    @abstractmethod
    def list_models(self, network: NetworkT) -> list[TrainedModel]:
        """Return the models to save after training, the run's main model last."""


def build_objective(
    config: ObjectiveConfig, data: DataConfig, masking: MaskingConfig
) -> Objective[Any]:
    """Return the objective that the configuration selects."""
    home = OBJECTIVES[choose_name(config, data, masking)].home
    return pkgutil.resolve_name(home)(config, data, masking)


def count_parameters_of(network: nn.Module) -> int:
    """Return the number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in network.parameters())
