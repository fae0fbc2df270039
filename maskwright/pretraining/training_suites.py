"""Suites scored while a model trains: `evaluate.suites`, at validations, in their fast form.

Every rank computes all suites and gets the same scores. So sharded weights can be gathered when
they are needed, and no rank waits in the next step for the first one until a collective times out.
"""

from collections.abc import Callable
from typing import get_args

from maskwright.errors import InputError
from maskwright.evaluation.held_out_text import describe_held_out
from maskwright.evaluation.minimal_pairs import read_named_pairs
from maskwright.evaluation.suites import Request, before_each_pass, load_suite
from maskwright.inference.text_model import TextModel
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, SuiteName
from maskwright.runs.evaluation_file import SuiteResult

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
        """Return the scores by name, prefixed by the name of the suite.

        Args:
            check: called before each forward pass; it may raise to stop.
        """
        request = self._request()
        scores: dict[str, float] = {}
        with before_each_pass(self.model, check):
            for suite in self.suites:
                scores |= name_scores(suite.score(request))
        return scores

    def _request(self) -> Request:
        """Return the request, with the model in evaluation mode."""
        wraps = self.config.data.special_tokens
        model = TextModel[MaskedLanguageModel].from_parts(self.model, self._tokenizer, wraps)
        return Request(model, self.config.valid_rows, self._text, self._pairs, is_fast=True)


def name_scores(result: SuiteResult) -> dict[str, float]:
    """Return scores by names such as ``fill/accuracy``, without paradigms of minimal pairs."""
    prefix = f"{result.suite}/"
    return {
        prefix + score.name.removeprefix(prefix): score.value
        for score in result.scores
        if score.name.count("/") <= 1
    }
