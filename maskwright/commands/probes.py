"""Suites scored while a model trains: `evaluate.suites`, at validations, in their fast form.

Every rank works all of it out and comes to the same scores. So weights that are spread over ranks
are at hand wherever they are needed, and no rank runs ahead into the next step and waits there for
the first one longer than collectives are given.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from maskwright.commands.assemble import PreparedData
from maskwright.commands.config import PretrainConfig
from maskwright.commands.evaluation_text import describe_held_out
from maskwright.commands.suites import NEED_TEXT, SUITES, Request, read_pairs
from maskwright.evaluation.scores import SuiteResult
from maskwright.inference.text_model import TextModel
from maskwright.model.pretraining import MaskedLanguageModel

# Of each suite the score to show where there is room for one.
HEADLINES = (
    "mlm/bits_per_character",
    "fill/accuracy",
    "pll/pseudo_perplexity",
    "blimp/mean_over_paradigms",
)


class Probes:
    """The suites that a run wants scored.

    Raises:
        CorpusError: the minimal pairs of `evaluate.blimp` cannot be read.
    """

    def __init__(
        self, config: PretrainConfig, data: PreparedData, model: MaskedLanguageModel
    ) -> None:
        self.config, self.model = config, model
        self.suites = tuple(dict.fromkeys(config.evaluate.suites))
        needs_text = bool(set(self.suites) & set(NEED_TEXT))
        blimp = config.evaluate.blimp
        self._tokenizer = data.tokenizer
        self._text = describe_held_out(data.valid, data.tokenizer) if needs_text else None
        self._pairs = None if blimp is None else read_pairs(blimp)

    def score(self, check: Callable[[], None]) -> dict[str, float]:
        """The scores by name, each below the name of its suite.

        Args:
            check: called before each pass through the model, to stop by raising.
        """
        model = TextModel.from_parts(self.model, self._tokenizer, self.config.data.special_tokens)
        length = self.config.valid_row_length
        request = Request(model, length, self._text, self._pairs, is_fast=True)
        scores: dict[str, float] = {}
        with _before_each_pass(self.model, check):
            for suite in self.suites:
                scores |= name_scores(SUITES[suite](request))
        return scores


def name_scores(result: SuiteResult) -> dict[str, float]:
    """``fill/accuracy`` or ``mlm/perplexity``; of minimal pairs phenomena, but no paradigms."""
    prefix = f"{result.suite}/"
    return {
        prefix + score.name.removeprefix(prefix): score.value
        for score in result.scores
        if score.name.count("/") <= 1
    }


@contextmanager
def _before_each_pass(model: MaskedLanguageModel, check: Callable[[], None]) -> Generator[None]:
    handle = model.encoder.register_forward_pre_hook(lambda *_: check())
    try:
        yield
    finally:
        handle.remove()
