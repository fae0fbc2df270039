"""The validation of a run: scores on pinned masks, scores of suites, and filled-in samples.

To add a score to the validation line, add it where its objective states its scores, such as
`MaskedTokens.scores` in objectives/mlm.py.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.batch import Batch
from maskwright.distributed.world import ALONE, World
from maskwright.evaluation.pinned import PinnedText
from maskwright.inference.samples import HeldOutSamples
from maskwright.logs import Record
from maskwright.model.masked_lm import Network
from maskwright.objectives.objective import Objective
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.training_suites import TrainingSuites
from maskwright.runs.config import PretrainConfig
from maskwright.train.signals import AbandonedError

NUM_SAMPLES = 5


@dataclass(frozen=True)
class HeldOutText:
    """The validation text of a run, with pinned masks.

    Attributes:
        num_tokens: token slots, shared evenly by the sources, whatever their share of the training:
            so runs that mix them in other shares have the same masks.
        before_each: called before each batch; it may raise.
    """

    config: PretrainConfig
    data: PreparedData
    num_tokens: int
    device: torch.device
    world: World
    label_counts: NDArray[np.int64]
    before_each: Callable[[], None]

    def read_sources(self, *, pairs: bool = False) -> dict[str, Iterator[Batch]]:
        """Return this rank's batches of each source.

        Args:
            pairs: rows of pairs of texts, as in training. Otherwise rows of single segments, so
                that runs with and without pairs have the same masks.
        """
        rows = self.config.valid_rows
        if pairs:
            rows = replace(rows, pairs=self.config.data.pairs)
        sources = self.data.sources or {self.data.name: self.data}
        special = self.data.special_ids(self.config.data.special_tokens)
        share = self.num_tokens // len(sources)
        return {
            name: self._watch(PinnedText(source.valid, rows, special, self.data.vocabulary, share))
            for name, source in sources.items()
        }

    def _watch(self, text: PinnedText) -> Iterator[Batch]:
        for batch in text.batches(world=self.world):
            self.before_each()
            yield batch


def not_compiling() -> AbstractContextManager[object]:
    """Return a context in which compiled blocks are not: each text would be a shape of its own."""
    is_used = "torch._dynamo" in sys.modules  # else nothing is compiled
    return torch.compiler.set_stance("force_eager") if is_used else nullcontext()


class Validation:
    """Scores the objective's network and fills in masked words of held-out text.

    It also scores the suites of `evaluate.suites`, at every N-th validation and at the last.

    Raises:
        ShardError: there is no masked token to score.
        CorpusError: the minimal pairs of `evaluate.blimp` cannot be read.
    """

    def __init__(
        self,
        config: PretrainConfig,
        data: PreparedData,
        objective: Objective[Any],
        network: Network,
        world: World = ALONE,
    ) -> None:
        self.config, self.data, self.world = config, data, world
        self.objective, self.network = objective, network
        self.model = objective.masked_lm(network)
        self.suites = TrainingSuites(config, data, self.model)
        longest = self.model.config.max_position_embeddings - config.data.extra_slots
        count = 0 if config.private else NUM_SAMPLES
        self.samples = HeldOutSamples(data.valid, data.tokenizer, count, longest)
        # The baseline may only predict what can be a label: [UNK] is often frequent and never one.
        ordinary = data.vocabulary.ordinary_ids
        self._label_counts = np.zeros_like(data.train.unigram_counts)
        self._label_counts[ordinary] = data.train.unigram_counts[ordinary]
        for final in (False, True):
            objective.check_held_out(self.hold_out(final))

    def __call__(
        self, number: int, final: bool, is_asked_to_stop: Callable[[], bool] = lambda: False
    ) -> Record:
        """Return the scores of the network as it is.

        Args:
            number: which validation of the run this is, from 1 on; 0 before the first step.
            final: whether the run is over, which is worth more tokens.

        Raises:
            AbandonedError: on all ranks, if one of them was asked to stop.
        """
        check = partial(self._check_stop, is_asked_to_stop)
        with not_compiling():
            scores = self.objective.validate(self.network, self.hold_out(final, self.world, check))
            is_turn = final or number % self.config.evaluate.every_validations == 0
            of_suites = self.suites.score(check) if is_turn else {}
            lines = self.samples.predict(self.model, self.config.data.special_tokens)
        return {**scores, **of_suites, "final": final, "samples": lines}

    def _check_stop(self, is_asked_to_stop: Callable[[], bool]) -> None:
        # Agreed upon: where weights are spread, ranks need one another to compute.
        (num_asked_to_stop,) = self.world.sum(is_asked_to_stop())
        if num_asked_to_stop:
            raise AbandonedError

    def hold_out(
        self, final: bool, world: World = ALONE, before_each: Callable[[], None] = lambda: None
    ) -> HeldOutText:
        """Return the text of a validation, the longer one if it is the `final` one."""
        train, device = self.config.train, next(self.model.parameters()).device
        num_tokens = train.final_valid_tokens if final else train.valid_tokens
        counts = self._label_counts
        return HeldOutText(self.config, self.data, num_tokens, device, world, counts, before_each)
