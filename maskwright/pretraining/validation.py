"""What is said of a run's weights again and again: scores, and words filled in."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np

from maskwright.data.batch import Batch
from maskwright.data.config import DataConfig
from maskwright.distributed.world import ALONE, World
from maskwright.errors import ShardError
from maskwright.evaluation.masked_lm import (
    build_pinned_batches,
    evaluate_masked_lm,
    evaluate_sources,
)
from maskwright.evaluation.replaced_tokens import evaluate_replaced_tokens
from maskwright.evaluation.sentence_pairs import evaluate_sentence_pairs
from maskwright.inference.samples import HeldOutSamples
from maskwright.model.electra import GeneratorAndDiscriminator, Network
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.training_suites import Probes
from maskwright.runs.config import PretrainConfig
from maskwright.train.signals import AbandonedError

NUM_SAMPLES = 5


class Validation:
    """Pinned-mask scores and, beside them, what the model fills into held-out text.

    And the suites of `evaluate.suites`, at the validations that are their turn and the last one.

    Attributes:
        number: which validation of the run a call is, from 1 on; 0 before its first step.

    Raises:
        ShardError: there is nothing to score.
        CorpusError: the minimal pairs of `evaluate.blimp` cannot be read.
    """

    def __init__(
        self,
        config: PretrainConfig,
        data: PreparedData,
        network: Network,
        world: World = ALONE,
    ) -> None:
        # The one that guesses words; beside it there may be one that judges them.
        self.both = network if isinstance(network, GeneratorAndDiscriminator) else None
        model = network.generator if isinstance(network, GeneratorAndDiscriminator) else network
        self.config, self.data, self.model, self.world = config, data, model, world
        self.number: Callable[[], int] = lambda: 0
        self.probes = Probes(config, data, model)
        longest = model.config.max_position_embeddings - config.data.extra_slots
        self.samples = HeldOutSamples(data.valid, data.tokenizer, NUM_SAMPLES, longest)
        # The baseline may only guess what can be a label: [UNK] is often frequent and never one.
        ordinary = data.vocabulary.ordinary_ids
        self._label_counts = np.zeros_like(data.train.unigram_counts)
        self._label_counts[ordinary] = data.train.unigram_counts[ordinary]
        self._sources = data.sources or {data.name: data}
        for final, source in product((False, True), self._sources.values()):
            batches = self._pin(source, config.valid_rows, final, ALONE)
            if not any(batch.num_predictions for batch in batches):
                raise ShardError(
                    f"{source.name} holds too little validation text: no token of it is hidden, so "
                    "nothing can be scored. Prepare it with a larger corpus.valid_fraction."
                )
        if config.data.pairs is not None and not any(
            batch.num_pairs for batch in self._pairs(False)
        ):
            raise ShardError(
                f"{data.name} holds too little validation text for pairs. Prepare it with a "
                "larger corpus.valid_fraction."
            )

    def __call__(
        self, final: bool, is_asked_to_stop: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """The scores of the model as it is.

        Args:
            final: whether the run is over, which is worth more tokens.

        Raises:
            AbandonedError: on all ranks, if one of them was asked to stop.
        """
        device = next(self.model.parameters()).device
        scores = self._score_tokens(final, is_asked_to_stop)
        judged = {}
        if self.both is not None:
            batches = self._until_asked_to_stop(self._batches(final, self.world), is_asked_to_stop)
            judged = asdict(evaluate_replaced_tokens(self.both, batches, device, self.world))
        if self.config.data.pairs is not None:
            batches = self._until_asked_to_stop(self._pairs(final), is_asked_to_stop)
            pairs = evaluate_sentence_pairs(self.model, batches, device, self.world)
            judged = {**judged, **asdict(pairs)}
        is_turn = final or self.number() % self.config.evaluate.every_validations == 0
        check = partial(self._check_stop, is_asked_to_stop)
        probed = self.probes.score(check) if is_turn else {}
        lines = self.samples.predict(self.model, self.config.data.special_tokens)
        return {**scores, **judged, **probed, "final": final, "samples": lines}

    def _score_tokens(self, final: bool, is_asked_to_stop: Callable[[], bool]) -> dict[str, float]:
        """Scores over all text and, where it is of several sources, ``loss/NAME`` and others."""
        device = next(self.model.parameters()).device
        counts, world = self._label_counts, self.world
        if not self.data.sources:
            batches = self._until_asked_to_stop(self._batches(final, world), is_asked_to_stop)
            return asdict(evaluate_masked_lm(self.model, batches, counts, device, world))
        each = {
            name: self._until_asked_to_stop(
                self._pin(source, self.config.valid_rows, final, world), is_asked_to_stop
            )
            for name, source in self._sources.items()
        }
        scores, of_each = evaluate_sources(self.model, each, counts, device, world)
        return asdict(scores) | {
            f"{score}/{name}": value
            for name, own in of_each.items()
            for score, value in asdict(own).items()
        }

    def _check_stop(self, is_asked_to_stop: Callable[[], bool]) -> None:
        # Agreed upon: where weights are spread, ranks need one another to compute.
        (num_asked_to_stop,) = self.world.sum(is_asked_to_stop())
        if num_asked_to_stop:
            raise AbandonedError

    def _until_asked_to_stop(
        self, batches: Iterator[Batch], is_asked_to_stop: Callable[[], bool]
    ) -> Iterator[Batch]:
        for batch in batches:
            self._check_stop(is_asked_to_stop)
            yield batch

    def _batches(self, final: bool, world: World) -> Iterator[Batch]:
        """Rows of single segments, so that runs with and without pairs have the same masks."""
        return self._pin_all(self.config.valid_rows, final, world)

    def _pairs(self, final: bool) -> Iterator[Batch]:
        rows = replace(self.config.valid_rows, pairs=self.config.data.pairs)
        return self._pin_all(rows, final, self.world)

    def _pin_all(self, rows: DataConfig, final: bool, world: World) -> Iterator[Batch]:
        sources = self._sources.values()
        return chain.from_iterable(self._pin(source, rows, final, world) for source in sources)

    def _pin(
        self, source: PreparedData, rows: DataConfig, final: bool, world: World
    ) -> Iterator[Batch]:
        """As much text of each source, whatever its share: other shares, the same masks."""
        train = self.config.train
        num_tokens = train.final_valid_tokens if final else train.valid_tokens
        return build_pinned_batches(
            source.valid,
            rows,
            self.data.special_ids(self.config.data.special_tokens),
            self.data.vocabulary,
            num_tokens // len(self._sources),
            world,
        )
