"""How likely a model finds a corpus of sentences: pseudo-perplexity and what goes with it."""

import hashlib
import json
import math
from collections.abc import Sequence

import numpy as np

from maskwright.errors import InputError
from maskwright.evaluation.intervals import (
    NUM_RESAMPLES,
    RESAMPLING_SEED,
    percentile_interval,
    resample_sums,
)
from maskwright.evaluation.pseudo_likelihood import score_pseudo_likelihood
from maskwright.evaluation.questions import Metric
from maskwright.evaluation.scores import Score, SuiteResult
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.tokenizer import Tokenizer


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
    """Scores of a corpus; one sentence a text, as pseudo-log-likelihoods are meant.

    ``pll/pseudo_perplexity``, ``exp(-total / tokens)`` (Salazar et al. 2020), holds for one
    tokenizer alone; ``pll/bits_per_character`` also compares models of different tokenizers;
    ``pll/mean_log_likelihood`` is of a text, in nats.

    Args:
        texts: those without a token, such as blank lines, are left out.
        metric: what is hidden together with a token.
        name: of the data, for the record.
        add_special_tokens, batch_tokens: as in `score_pseudo_likelihood`.

    Raises:
        InputError: no text with a token, a text longer than the model, or no such metric.
    """
    results = score_pseudo_likelihood(
        *(model, tokenizer, texts, metric),
        add_special_tokens=add_special_tokens,
        batch_tokens=batch_tokens,
    )
    results = [result for result in results if result.num_tokens]
    if not results:
        raise InputError("there is no text with a token to evaluate on.")
    # [R, 4]: log-likelihood, tokens, characters, texts. All scores are made of their sums.
    table = np.array([[r.total, r.num_tokens, len(r.text), 1] for r in results], np.float64)
    unknown = sum(result.token_ids.count(tokenizer.unk_id) for result in results)
    canonical = json.dumps([result.text for result in results])
    return SuiteResult(
        suite="pll",
        data={
            "name": name,
            "fingerprint": hashlib.sha256(canonical.encode()).hexdigest(),
            "num_texts": len(results),
            "num_tokens": int(table[:, 1].sum()),
            "num_unknown_tokens": unknown,
        },
        settings={
            "metric": metric,
            "interval": f"bootstrap over texts, {NUM_RESAMPLES} resamples, seed {RESAMPLING_SEED}",
        },
        scores=tuple(_summarise(table)),
    )


def _summarise(table: np.ndarray) -> list[Score]:
    sums = np.vstack([table.sum(0), resample_sums(table)])
    total, tokens, characters, texts = sums.T
    with np.errstate(over="ignore"):
        perplexity = np.exp(-total / tokens)
    found = {
        "pll/pseudo_perplexity": perplexity,
        "pll/bits_per_character": -total / math.log(2) / characters,
        "pll/mean_log_likelihood": total / texts,
    }
    scores: list[Score] = []
    for name, (value, *draws) in found.items():
        low, high = percentile_interval(np.array(draws)) or (None, None)
        scores.append(Score(name, float(value), low, high, len(table)))
    return scores
