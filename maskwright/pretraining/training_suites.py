"""Suites scored while a model trains: `evaluate.suites`, at validations, in their fast form.

Every rank works all of it out and comes to the same scores. So weights that are spread over ranks
are at hand wherever they are needed, and no rank runs ahead into the next step and waits there for
the first one longer than collectives are given.
"""

from collections.abc import Callable
from typing import get_args

from maskwright.errors import InputError
from maskwright.evaluation.held_out_text import describe_held_out
from maskwright.evaluation.minimal_pairs import read_named_pairs
from maskwright.evaluation.suites import Request, before_each_pass, find_headlines, load_suite
from maskwright.inference.text_model import TextModel
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, SuiteName
from maskwright.runs.evaluation_file import SuiteResult

# The scores to show where there is little room.
HEADLINES = find_headlines(get_args(SuiteName))


class TrainingSuites:
    """The suites of a run's configuration.

    Raises:
        CorpusError: the minimal pairs of `evaluate.blimp` cannot be read.
        InputError: a suite cannot be scored: too little text, or pairs longer than the model.
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
        """Return the scores by name, each below the name of its suite.

        Args:
            check: called before each pass through the model, to stop by raising.
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
    """Return scores as ``fill/accuracy``; of minimal pairs the phenomena, but no paradigms."""
    prefix = f"{result.suite}/"
    return {
        prefix + score.name.removeprefix(prefix): score.value
        for score in result.scores
        if score.name.count("/") <= 1
    }
