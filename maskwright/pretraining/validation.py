"""The validation of a run: scores on pinned masks, scores of suites, and filled-in samples.

A network and held-out text come in; a validation record goes out (`Validation`).

To add a score to the validation line, add it where its objective states its scores, such as
`MaskedTokens.scores` in objectives/mlm.py. Every rank computes all suites of `evaluate.suites` and
gets the same scores. So sharded weights can be gathered when they are needed, and no rank waits in
the next step for the first one until a collective times out.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.batch import Batch
from maskwright.distributed.world import ALONE, World
from maskwright.errors import InputError
from maskwright.evaluation.data import PinnedText, describe_held_out, read_named_pairs
from maskwright.evaluation.suites import Request, before_each_pass, load_suite
from maskwright.inference.samples import HeldOutSamples
from maskwright.inference.text_model import TextModel
from maskwright.logs import Record
from maskwright.model.masked_lm import MaskedLanguageModel, Network
from maskwright.objectives.objective import Objective
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, SuiteName
from maskwright.train.signals import AbandonedError

# The scores for a short summary.
HEADLINES = [name for suite in get_args(SuiteName) for name in load_suite(suite).headlines]


class TrainingSuites:
    """The suites of a run's configuration.

    Raises:
        CorpusError: the minimal pairs of `evaluate.blimp` cannot be read.
        InputError: a suite cannot be scored: too little text, or pairs over the model's limit.
    """

    def __init__(
        self, config: PretrainConfig, data: PreparedData, model: MaskedLanguageModel
    ) -> None:
        self.config, self.model = config, model
        self.suites = [load_suite(name) for name in dict.fromkeys(config.evaluate.suites)]
        needs_text = any(suite.needs == "text" for suite in self.suites)
        blimp = config.evaluate.blimp
        self._tokenizer = data.tokenizer
        self._text = describe_held_out(data.valid, data.tokenizer) if needs_text else None
        self._pairs = None if blimp is None else read_named_pairs(blimp)
        was_training = model.training
        for suite in self.suites:
            try:
                suite.check(self._request())
            except InputError as error:
                message = f"evaluate.suites: {suite.name} cannot be scored: {error}"
                raise InputError(message) from None
        model.train(was_training)

    def score(self, check: Callable[[], None]) -> dict[str, float]:
        """Return the scores by names such as ``fill/accuracy``, without paradigms of minimal pairs.

        Args:
            check: called before each forward pass; it may raise to stop.
        """
        request = self._request()
        scores: dict[str, float] = {}
        with before_each_pass(self.model, check):
            for suite in self.suites:
                prefix = f"{suite.name}/"
                found = [s for s in suite.score(request).scores if s.name.count("/") <= 1]
                scores |= {prefix + s.name.removeprefix(prefix): s.value for s in found}
        return scores

    def _request(self) -> Request:
        """Return the request, with the model in evaluation mode."""
        wraps = self.config.data.special_tokens
        model = TextModel[MaskedLanguageModel].from_parts(self.model, self._tokenizer, wraps)
        return Request(model, self.config.valid_rows, self._text, self._pairs, is_fast=True)


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
        longest = self.model.config.max_position_embeddings - config.data.special_per_segment
        count = 0 if config.private else NUM_SAMPLES
        frequencies = data.train.unigram_counts
        self.samples = HeldOutSamples(data.valid, data.tokenizer, frequencies, count, longest)
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
            wraps = self.config.data.special_tokens
            lines = self.samples.predict(self.model, wraps)
            counts = self.samples.count_right(self.model, wraps)._asdict() if final else {}
        counts = counts if lines else {}
        return {**scores, **of_suites, "final": final, "samples": lines, **counts}

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
