"""The suites on single sentences: ``fill`` predicts one masked token, ``pll`` scores them whole.

``fill`` has the metric of shreydan/masked-language-modeling with pinned masks: the masked token is
a function of (fixed seed, index of the sentence), so all models with one tokenizer get the same
task. ``pll`` has the pseudo-perplexity, and other scores from the same sums.
"""

import hashlib
import json
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.counter_rng import derive_keys, to_unit
from maskwright.errors import InputError
from maskwright.evaluation.data import PINNED_SEED
from maskwright.evaluation.intervals import (
    ScoreFormula,
    SumTable,
    describe_bootstrap,
    mean_interval,
    ratio,
    score_share,
)
from maskwright.evaluation.pseudo_likelihood import Metric, scoring
from maskwright.evaluation.suite_mlm import Unigram, rank_labels
from maskwright.evaluation.suites import Request, Suite, mark_fast
from maskwright.inference.text_model import TextModel
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.runs.evaluation_file import DataFacts, Score, SuiteResult
from maskwright.tokenizer.token_text import BLANK, count_characters
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer

_TOPS = {"fill/accuracy": 1, "fill/accuracy_top5": 5}


def evaluate_fill(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[int]],
    counts: NDArray[np.int64],
    data: DataFacts,
    add_special_tokens: bool = True,
) -> SuiteResult:
    """Return top-1 and top-5 accuracy and the loss of single masked tokens.

    Args:
        model: a model on any device.
        sentences: ids without special tokens; a sentence is cut at the model's maximum length, and
            skipped if it has only special tokens or [UNK].
        counts: [V] training counts, for the baseline.
        data: the name and fingerprint of the sentences, for the results.
        add_special_tokens: True if the model was trained on [CLS] … [SEP].

    Raises:
        InputError: no sentence has a token to mask.
    """
    text_model = TextModel[MaskedLanguageModel].from_parts(model, tokenizer, add_special_tokens)
    longest = text_model.longest - len(text_model.wrap([]))
    cut = [list(sentence[:longest]) for sentence in sentences]
    positions = choose_positions(cut, tokenizer.ordinary_ids)
    chosen = [(ids, at) for ids, at in zip(cut, positions, strict=True) if at is not None]
    if not chosen:
        raise InputError(f"{data['name']} has no sentence with a token to mask. Give more text.")
    labels = np.array([ids[position] for ids, position in chosen])
    loss, rank = _predict(text_model, chosen, labels)
    unigram = Unigram(counts)
    settings = {
        "seed": PINNED_SEED,
        "num_skipped": len(cut) - len(chosen),
        "longest_sentence_tokens": longest,
        "interval": f"Wilson; for the loss, {describe_bootstrap('sentences')}",
    }
    scores = [
        score_share(
            name,
            num_right=int((rank <= k).sum()),
            num_samples=len(rank),
            baseline=float((unigram.rank[labels] <= k).mean()),
        )
        for name, k in _TOPS.items()
    ]
    low, high = mean_interval(loss) or (None, None)
    baseline = float(unigram.loss[labels].mean())
    scores.append(Score("fill/loss", float(loss.mean()), low, high, len(loss), baseline))
    return SuiteResult("fill", data, settings, tuple(scores))


def choose_positions(
    sentences: Sequence[Sequence[int]], ordinary_ids: NDArray[np.int64]
) -> list[int | None]:
    """Return the position to mask in each sentence, or None if it has no ordinary token."""
    ordinary = set(ordinary_ids.tolist())
    draws = to_unit(derive_keys(PINNED_SEED, np.arange(len(sentences))))
    positions: list[int | None] = []
    for ids, draw in zip(sentences, draws.tolist(), strict=False):
        maskable = [position for position, token_id in enumerate(ids) if token_id in ordinary]
        positions.append(maskable[int(draw * len(maskable))] if maskable else None)
    return positions


@torch.inference_mode()
def _predict(
    text_model: TextModel[MaskedLanguageModel],
    chosen: Sequence[tuple[list[int], int]],
    labels: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    first = text_model.wrap([-1]).index(-1)
    rows: list[list[int]] = []
    for ids, position in chosen:
        masked = [*ids[:position], text_model.tokenizer.mask_id, *ids[position + 1 :]]
        rows.append(text_model.wrap(masked))
    loss, rank = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
    for batch in text_model.make_batches(rows):
        columns = torch.tensor([first + chosen[number][1] for number in batch.numbers])
        positions = torch.arange(len(columns)) * batch.ids.shape[1] + columns
        vectors = text_model.encode(batch, text_model.model.predictors(positions))
        right = torch.tensor(labels[batch.numbers]).to(vectors.device)
        predictions = rank_labels(text_model.model, vectors, right)
        loss[batch.numbers], rank[batch.numbers] = predictions.loss, predictions.rank
    return loss, rank


def _check_fill(request: Request) -> None:
    cut = [ids[: request.room] for ids in _find_sentences(request)]
    ordinary_ids = request.model.tokenizer.ordinary_ids
    if all(position is None for position in choose_positions(cut, ordinary_ids)):
        raise request.too_short("no sentence of it has a token to mask")


def _score_fill(request: Request) -> SuiteResult:
    text, model, sentences = request.need_text(), request.model, _find_sentences(request)
    result = evaluate_fill(
        model.model, model.tokenizer, sentences, text.counts, text.data, request.wraps
    )
    return mark_fast(result, request.is_fast and len(sentences) == FILL.fast)


def _find_sentences(request: Request) -> list[list[int]]:
    return request.need_text().sentences(request.find_size(FILL))


FILL = Suite(
    name="fill",
    needs="text",
    full=10_000,
    fast=1_000,
    check=_check_fill,
    score=_score_fill,
    headlines=("fill/accuracy",),
)


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
        model,
        tokenizer,
        texts=encoded,
        data={"name": name, "fingerprint": hashlib.sha256(canonical.encode()).hexdigest()},
        metric=metric,
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


def _check_pll(request: Request) -> None:
    if not any(len(text.ids) for text in _drop_long(_find_texts(request), request)):
        raise request.too_short("no sentence of it has a token and fits the model")


def _score_pll(request: Request) -> SuiteResult:
    text, model, chosen = request.need_text(), request.model, _find_texts(request)
    texts = _drop_long(chosen, request)
    data: DataFacts = {**text.data, "num_left_out": len(chosen) - len(texts)}
    result = evaluate_encoded(
        model.model,
        model.tokenizer,
        texts=texts,
        data=data,
        add_special_tokens=request.wraps,
    )
    return mark_fast(result, request.is_fast and len(chosen) == PLL.fast)


def _find_texts(request: Request) -> list[EncodedText]:
    return request.need_text().encoded(request.find_size(PLL))


def _drop_long(texts: Sequence[EncodedText], request: Request) -> list[EncodedText]:
    return [text for text in texts if len(text.ids) <= request.room]


PLL = Suite(
    name="pll",
    needs="text",
    full=500,
    fast=50,
    check=_check_pll,
    score=_score_pll,
    headlines=("pll/pseudo_perplexity",),
)
