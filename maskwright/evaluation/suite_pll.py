"""The suite ``pll``: pseudo-perplexity of sentences, and other scores from the same sums."""

import hashlib
import json
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import InputError
from maskwright.evaluation.intervals import ScoreFormula, SumTable, describe_bootstrap, ratio
from maskwright.evaluation.pseudo_likelihood import Metric, scoring
from maskwright.evaluation.suites import Request, Suite, mark_fast
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.runs.evaluation_file import DataFacts, SuiteResult
from maskwright.tokenizer.token_text import BLANK, count_characters
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer

# For each text: its log-likelihood and number of tokens; the log-likelihood of the tokens that have
# characters, and the number of these characters; the constant 1.
_SUMS = ("log_likelihood", "tokens", "spelled", "characters", "texts")
_FORMULAS = (
    ScoreFormula(
        "pll/pseudo_perplexity",
        lambda sums: np.exp(-sums["log_likelihood"] / sums["tokens"]),
        "texts",
    ),
    # Text of [UNK] and blanks alone has no characters, and therefore not this score.
    ScoreFormula(
        "pll/bits_per_character",
        lambda sums: -sums["spelled"] / math.log(2) / sums["characters"],
        "characters",
    ),
    ScoreFormula("pll/mean_log_likelihood", ratio("log_likelihood", "texts"), "texts"),
)


def evaluate_pseudo_likelihood(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    metric: Metric = "within_word_l2r",
    *,
    name: str = "texts",
    add_special_tokens: bool | None = None,
    batch_tokens: int | None = None,
) -> SuiteResult:
    """Return the scores of a corpus; each text should be one sentence.

    ``pll/pseudo_perplexity``, ``exp(-total / tokens)`` (Salazar et al. 2020), is comparable only
    for the same tokenizer, ``pll/bits_per_character`` also between tokenizers;
    ``pll/mean_log_likelihood`` is the mean over texts, in nats::

        model, tokenizer = load_model("runs/mine")
        result = evaluate_pseudo_likelihood(model, tokenizer, ["The cats sleep."])

    Args:
        texts: the sentences; those without tokens, such as blank lines, are skipped.
        metric: the choice of tokens that are masked together.
        name: the name of the data, for the results.
        add_special_tokens, batch_tokens: as in `score_pseudo_likelihood`.

    Raises:
        InputError: no text has tokens, one exceeds the model's length, or the metric is unknown.
    """
    encoded = tokenizer.encode_batch(texts)
    pairs = zip(texts, encoded, strict=True)
    canonical = json.dumps([text for text, tokens in pairs if len(tokens.ids)])
    return evaluate_encoded(
        *(model, tokenizer, encoded),
        {"name": name, "fingerprint": hashlib.sha256(canonical.encode()).hexdigest()},
        metric,
        add_special_tokens=add_special_tokens,
        batch_tokens=batch_tokens,
    )


def evaluate_encoded(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[EncodedText],
    data: DataFacts,
    metric: Metric = "within_word_l2r",
    *,
    add_special_tokens: bool | None = None,
    batch_tokens: int | None = None,
) -> SuiteResult:
    """Return the scores of tokenized texts; see `evaluate_pseudo_likelihood`.

    Args:
        data: the name and fingerprint of the texts, for the results.

    Raises:
        InputError: as `evaluate_pseudo_likelihood`.
    """
    texts = [text for text in texts if len(text.ids)]
    if not texts:
        raise InputError("there is no text with a token to evaluate on. Give more.")
    with scoring(model, tokenizer, add_special_tokens) as scorer:
        scores = scorer.score_encoded(texts, metric, batch_tokens)
    characters = count_characters(tokenizer)
    sums = [_measure(each, characters[text.ids]) for each, text in zip(scores, texts, strict=True)]
    table = SumTable(_SUMS, np.array(sums))
    unknown = sum(int((text.ids == tokenizer.unk_id).sum()) for text in texts)
    return SuiteResult(
        suite="pll",
        data={
            **data,
            "num_texts": len(texts),
            "num_tokens": int(table.totals["tokens"]),
            "num_unknown_tokens": unknown,
        },
        settings={"metric": metric, "interval": describe_bootstrap("texts")},
        scores=tuple(table.score(_FORMULAS)),
    )


def _measure(scores: list[float], characters: NDArray[np.int64]) -> list[float]:
    """Return the summands of a text; see `_SUMS`."""
    is_text = characters != BLANK
    spelled = math.fsum(np.array(scores)[is_text])
    return [math.fsum(scores), len(scores), spelled, int(characters[is_text].sum()), 1]


def _check(request: Request) -> None:
    if not any(len(text.ids) for text in _drop_long(_find_texts(request), request)):
        raise request.too_short("no sentence of it has a token and fits the model")


def _score(request: Request) -> SuiteResult:
    text, model, chosen = request.need_text(), request.model, _find_texts(request)
    texts = _drop_long(chosen, request)
    data: DataFacts = {**text.data, "num_left_out": len(chosen) - len(texts)}
    result = evaluate_encoded(
        *(model.model, model.tokenizer, texts, data), add_special_tokens=request.wraps
    )
    return mark_fast(result, request.is_fast and len(chosen) == SUITE.fast)


def _find_texts(request: Request) -> list[EncodedText]:
    return request.need_text().encoded(request.find_size(SUITE))


def _drop_long(texts: Sequence[EncodedText], request: Request) -> list[EncodedText]:
    return [text for text in texts if len(text.ids) <= request.room]


SUITE = Suite(
    name="pll",
    needs="text",
    full=500,
    fast=50,
    check=_check,
    score=_score,
    headlines=("pll/pseudo_perplexity",),
)
