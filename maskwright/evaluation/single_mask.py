"""The suite ``fill``: one token of each sentence hidden behind [MASK], and guessed.

The metric of shreydan/masked-language-modeling, pinned: which token is hidden is a function of
(fixed seed, number of the sentence), so all models with one tokenizer get the same task.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.counter_rng import derive_keys, to_unit
from maskwright.errors import InputError
from maskwright.evaluation.intervals import (
    NUM_RESAMPLES,
    RESAMPLING_SEED,
    mean_interval,
    wilson_interval,
)
from maskwright.evaluation.masked_detail import Unigram, rank_labels
from maskwright.evaluation.pinned import PINNED_SEED
from maskwright.evaluation.scores import Score, SuiteResult
from maskwright.inference.text_model import TextModel
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.tokenizer import Tokenizer

_TOPS = (1, 5)


def evaluate_fill(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[int]],
    counts: NDArray[np.int64],
    data: dict[str, Any],
    add_special_tokens: bool = True,
) -> SuiteResult:
    """Top-1 and top-5 accuracy and the loss of single hidden tokens.

    Args:
        model: on any device.
        sentences: ids without special tokens; what the model has no positions for is cut off, and
            a sentence without an ordinary token is passed over.
        counts: [V] training counts, for the baseline.
        data: name and fingerprint of the sentences, for the result.
        add_special_tokens: whether the model was trained on [CLS] … [SEP].

    Raises:
        InputError: no sentence has a token to hide.
    """
    text_model = TextModel.from_parts(model, tokenizer, add_special_tokens)
    longest = text_model.longest - len(text_model.wrap([]))
    cut = [list(sentence[:longest]) for sentence in sentences]
    places = choose_hidden(cut, tokenizer.ordinary_ids)
    chosen = [(ids, place) for ids, place in zip(cut, places, strict=True) if place is not None]
    if not chosen:
        raise InputError(f"{data['name']} has no sentence with a token to hide. Give more text.")
    labels = np.array([ids[place] for ids, place in chosen])
    loss, rank = _predict(text_model, chosen, labels)
    unigram = Unigram(counts)
    settings = {
        "seed": PINNED_SEED,
        "num_passed_over": len(cut) - len(chosen),
        "longest_sentence_tokens": longest,
        "interval": "Wilson; of the loss bootstrap over sentences, "
        f"{NUM_RESAMPLES} resamples, seed {RESAMPLING_SEED}",
    }
    scores = [_share(f"fill/accuracy{_suffix(k)}", rank, unigram.rank[labels], k) for k in _TOPS]
    low, high = mean_interval(loss) or (None, None)
    baseline = float(unigram.loss[labels].mean())
    scores.append(Score("fill/loss", float(loss.mean()), low, high, len(loss), baseline))
    return SuiteResult("fill", data, settings, tuple(scores))


def choose_hidden(
    sentences: Sequence[Sequence[int]], ordinary_ids: NDArray[np.int64]
) -> list[int | None]:
    """The place to hide in each sentence, any ordinary token alike; None without such a token."""
    ordinary = set(ordinary_ids.tolist())
    turns = to_unit(derive_keys(PINNED_SEED, np.arange(len(sentences))))
    places: list[int | None] = []
    for ids, turn in zip(sentences, turns.tolist(), strict=False):
        can_hide = [place for place, token_id in enumerate(ids) if token_id in ordinary]
        places.append(can_hide[int(turn * len(can_hide))] if can_hide else None)
    return places


@torch.inference_mode()
def _predict(
    text_model: TextModel, chosen: Sequence[tuple[list[int], int]], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Loss and rank of the hidden token of each sentence."""
    first = text_model.wrap([-1]).index(-1)
    rows: list[list[int]] = []
    for ids, place in chosen:
        hidden = [*ids[:place], text_model.tokenizer.mask_id, *ids[place + 1 :]]
        rows.append(text_model.wrap(hidden))
    loss, rank = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
    for batch in text_model.make_batches(rows):
        columns = torch.tensor([first + chosen[number][1] for number in batch.numbers])
        wanted = torch.arange(len(columns)) * batch.ids.shape[1] + columns
        vectors = text_model.encode(batch, text_model.model.predictors(wanted))
        right = torch.from_numpy(labels[batch.numbers]).to(vectors.device)
        losses, ranks, _ = rank_labels(text_model.model, vectors, right)
        loss[batch.numbers], rank[batch.numbers] = losses, ranks
    return loss, rank


def _share(name: str, rank: NDArray[np.int64], unigram: NDArray[np.int64], k: int) -> Score:
    right = int((rank <= k).sum())
    low, high = wilson_interval(right, len(rank))
    return Score(name, right / len(rank), low, high, len(rank), float((unigram <= k).mean()))


def _suffix(k: int) -> str:
    return "" if k == 1 else f"_top{k}"
