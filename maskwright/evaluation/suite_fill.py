"""The suite ``fill``: one token of each sentence is masked and predicted.

The metric is that of shreydan/masked-language-modeling with pinned masks: the masked token is a
function of (fixed seed, index of the sentence), so all models with one tokenizer get the same task.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.counter_rng import derive_keys, to_unit
from maskwright.errors import InputError
from maskwright.evaluation.held_out_text import PINNED_SEED
from maskwright.evaluation.intervals import describe_bootstrap, mean_interval, score_share
from maskwright.evaluation.suite_mlm import Unigram, rank_labels
from maskwright.evaluation.suites import Request, Suite, mark_fast
from maskwright.inference.text_model import TextModel
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.runs.evaluation_file import DataFacts, Score, SuiteResult
from maskwright.tokenizer.tokenizer import Tokenizer

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
            *(name, int((rank <= k).sum()), len(rank)), float((unigram.rank[labels] <= k).mean())
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
    """Return loss and rank of the masked token of each sentence."""
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


def _check(request: Request) -> None:
    cut = [ids[: request.room] for ids in _find_sentences(request)]
    ordinary_ids = request.model.tokenizer.ordinary_ids
    if all(position is None for position in choose_positions(cut, ordinary_ids)):
        raise request.too_short("no sentence of it has a token to mask")


def _score(request: Request) -> SuiteResult:
    text, model, sentences = request.need_text(), request.model, _find_sentences(request)
    result = evaluate_fill(
        model.model, model.tokenizer, sentences, text.counts, text.data, request.wraps
    )
    return mark_fast(result, request.is_fast and len(sentences) == SUITE.fast)


def _find_sentences(request: Request) -> list[list[int]]:
    return request.need_text().sentences(request.find_size(SUITE))


SUITE = Suite(
    name="fill",
    needs="text",
    full=10_000,
    fast=1_000,
    check=_check,
    score=_score,
    headlines=("fill/accuracy",),
)
