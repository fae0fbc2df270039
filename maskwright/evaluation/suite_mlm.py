"""The suite ``mlm``: all scores of masked language modeling on pinned masks.

Predictions are summed by row of text, and every score is a function of the sums; docs/evaluation.md
explains formulas and names. M masked tokens of a batch, D width, V vocabulary.
"""

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch, SpecialIds
from maskwright.data.config import MaskingConfig
from maskwright.data.masking import Vocabulary
from maskwright.errors import InputError
from maskwright.evaluation.data import PINNED_MASKING, PINNED_SEED, PinnedText
from maskwright.evaluation.intervals import (
    Formula,
    ScoreFormula,
    Sums,
    SumTable,
    Values,
    describe_bootstrap,
    ratio,
    sum_by_row,
)
from maskwright.evaluation.suites import Request, Suite, mark_fast
from maskwright.inference.text_model import check_finite
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.scores import ACCURACY, ACCURACY_TOP5, MASKED_LM_SCORES
from maskwright.runs.evaluation_file import DataFacts, SuiteResult
from maskwright.tokenizer.token_text import BLANK, count_characters

_LOGITS_AT_ONCE = 1 << 24  # 64 MB of fp32


@dataclass(frozen=True)
class TokenPredictions:
    """The predictions of a model for M masked tokens.

    Attributes:
        loss: [M] -log p of the correct token, in nats.
        rank: [M] its rank, from 1, among all tokens by descending logit; ties by ascending id.
        confidence: [M] the probability of the most probable token.
    """

    loss: NDArray[np.float64]
    rank: NDArray[np.int64]
    confidence: NDArray[np.float64]


@torch.no_grad()
def rank_labels(model: MaskedLanguageModel, hidden: Tensor, labels: Tensor) -> TokenPredictions:
    """Return the predictions from hidden states [M, D] for labels [M], in chunks.

    Raise ModelFolderError if the model's probabilities are not finite.
    """
    at_once = max(1, _LOGITS_AT_ONCE // model.config.vocab_size)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, max(1, len(hidden)), at_once):
        vectors, right = hidden[start : start + at_once], labels[start : start + at_once]
        logits = model.head(vectors).float()
        own = logits.gather(1, right[:, None])
        ids = torch.arange(logits.shape[1], device=logits.device)
        before = (logits > own) | ((logits == own) & (ids < right[:, None]))
        confidence = (logits.amax(1) - logits.logsumexp(1)).exp()
        losses = F.cross_entropy(logits, right, reduction="none")
        check_finite(losses)
        parts.append((losses, before.sum(1) + 1, confidence))
    loss, rank, confidence = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return TokenPredictions(loss.astype(np.float64), rank, confidence.astype(np.float64))


class Unigram:
    """The baseline that predicts by training frequencies, with add-one smoothing.

    Args:
        counts: [V] training counts, 0 for tokens that are never labels.

    Attributes:
        loss: [V] -log of each token's frequency.
        rank: [V] its rank by descending frequency, from 1; ties by ascending id.
        decade: [V] the integer part of log10 of its count; counts below 10 are in decade 0.
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        frequencies = counts.astype(np.float64) + 1
        self.loss = -np.log(frequencies / frequencies.sum())
        self.rank = np.empty(len(counts), np.int64)
        self.rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
        self.decade = np.array([len(str(count)) - 1 for count in counts.tolist()])
        self.num_decades = int(self.decade.max()) + 1


# The same tokens, all replaced by [MASK].
MASK_ONLY = MaskingConfig(rate=0.15, mask_share=1.0, random_share=0.0)
# Whole words, with all tokens replaced by [MASK], so that no token reveals the rest of its word.
WORD_MASKING = MaskingConfig(rate=0.15, strategy="words", mask_share=1.0, random_share=0.0)
_TOPS = (1, 5, 10)
_NUM_CONFIDENCE_BINS = 15
_SEEN = ("mask", "random", "kept")  # the input token at a masked position
_OF_GROUPS = ("count", "loss", "top1", "top5", "unigram_loss", "unigram_top1", "unigram_top5")


@dataclass(frozen=True)
class MaskedTables:
    """Sums by row of a model's predictions on a text.

    Attributes:
        tokens: the sums with 15 % of the tokens masked, 80/10/10.
        mask_only: the sums with the same tokens, all replaced by [MASK].
        words: the sums with whole words masked.
        masks: sha256 of the masked tokens and their positions, equal if the tasks are equal.
        num_decades: the number of powers of ten among the training counts.
    """

    tokens: SumTable
    mask_only: SumTable
    words: SumTable
    masks: str
    num_decades: int


def measure_request(request: Request) -> MaskedTables:
    """Return the sums by row for the text of a request."""
    model, counts = request.model, request.need_text().counts
    characters = count_characters(model.tokenizer)
    return measure_masked_lm(model.model, pin_text(request), counts, characters)


def pin_text(request: Request) -> PinnedText:
    """Return the text as rows with pinned masks, up to the model's maximum length."""
    text, tokenizer = request.need_text(), request.model.tokenizer
    length = min(request.rows.max_seq_length, request.model.longest)
    return PinnedText(
        text.corpus,
        replace(request.rows, max_seq_length=length, special_tokens=request.wraps),
        SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, request.wraps),
        Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids, text.counts),
        request.find_size(MLM),
    )


def measure_masked_lm(
    model: MaskedLanguageModel,
    text: PinnedText,
    counts: NDArray[np.int64],
    characters: NDArray[np.int64],
) -> MaskedTables:
    """Run the model over the text with three kinds of masks: tokens in two ways, then words.

    Args:
        model: a model in evaluation mode, on any device.
        counts: [V] training counts of the tokens, 0 for tokens that are never labels.
        characters: [V] the characters of text in each token; `BLANK` for tokens of blanks, which
            some tokenizers drop, so they do not count when tokenizers are compared.
    """
    unigram, digest = Unigram(counts), hashlib.sha256()
    is_ordinary = np.zeros(len(counts), bool)
    is_ordinary[text.vocabulary.ordinary_ids] = True

    def measure(masking: MaskingConfig) -> SumTable:
        parts: list[Values] = []
        for batch, word_of_slot in text.batches_with_words(masking):
            positions, labels = batch.masked_tokens()
            if masking is PINNED_MASKING:
                digest.update(positions.numpy().tobytes() + labels.numpy().tobytes())
            found = predict(model, batch, positions, labels)
            seen = batch.input_ids[positions].numpy()
            is_mask = seen == text.vocabulary.mask_id
            values = _describe_tokens(found, labels.numpy(), seen, is_mask, unigram, characters)
            if masking is WORD_MASKING:
                shown = is_ordinary[batch.input_ids.numpy()]
                is_part = np.bincount(word_of_slot, shown) > 0
                words = word_of_slot[positions.numpy()]
                right = (values["top1"], values["unigram_top1"])
                values |= _describe_words(*right, words, is_part[words])
            length = batch.context.row_length
            rows, num_rows = positions.numpy() // length, len(batch.input_ids) // length
            parts.append(sum_by_row(rows, num_rows, values))
        return SumTable.join(parts)

    tokens, mask_only, words = map(measure, (PINNED_MASKING, MASK_ONLY, WORD_MASKING))
    return MaskedTables(tokens, mask_only, words, digest.hexdigest(), unigram.num_decades)


@torch.no_grad()
def predict(
    model: MaskedLanguageModel, batch: Batch, positions: Tensor, labels: Tensor
) -> TokenPredictions:
    """Return the model's predictions at positions [M] of a batch, as arrays on the CPU."""
    device = next(model.parameters()).device
    moved = batch.to(device)
    output_positions = model.predictors(positions).to(device)
    hidden = model.encoder(moved.input_ids, moved.context, output_positions=output_positions)
    return rank_labels(model, hidden, labels.to(device))


def _describe_tokens(
    predictions: TokenPredictions,
    labels: NDArray[np.int64],
    seen: NDArray[np.int64],
    is_mask: NDArray[np.bool_],
    unigram: Unigram,
    characters: NDArray[np.int64],
) -> Values:
    """Return the summands of each of M masked tokens for the sums of its row."""
    unigram_rank = unigram.rank[labels]
    is_text = characters[labels] != BLANK
    values: Values = {
        "count": np.ones(len(labels)),
        "loss": predictions.loss,
        "reciprocal_rank": 1 / predictions.rank,
        "characters": is_text * characters[labels],
        "text_loss": is_text * predictions.loss,
        "unigram_text_loss": is_text * unigram.loss[labels],
        "unigram_loss": unigram.loss[labels],
        "unigram_reciprocal_rank": 1 / unigram_rank,
    }
    for k in _TOPS:
        values[f"top{k}"], values[f"unigram_top{k}"] = predictions.rank <= k, unigram_rank <= k
    is_kept = seen == labels
    groups = {"mask": is_mask, "random": ~is_mask & ~is_kept, "kept": is_kept}
    for decade in range(unigram.num_decades):
        groups[str(decade)] = unigram.decade[labels] == decade
        groups[f"mask_{decade}"] = groups["mask"] & groups[str(decade)]
    for name, member in groups.items():
        for what in _OF_GROUPS:
            values[f"{name}_{what}"] = member * values[what]
    # Confidence bins of equal width: (0, 1/15], (1/15, 2/15], …
    bins = np.ceil(predictions.confidence * _NUM_CONFIDENCE_BINS).astype(np.int64) - 1
    bins = bins.clip(0, _NUM_CONFIDENCE_BINS - 1)
    for number in range(_NUM_CONFIDENCE_BINS):
        member = bins == number
        values[f"{number}_confidence"] = member * predictions.confidence
        values[f"{number}_right"] = member & (predictions.rank == 1)
    return values


def _describe_words(
    right: np.ndarray, baseline: np.ndarray, words: NDArray[np.int64], is_part: NDArray[np.bool_]
) -> Values:
    """Return the summands for whole words; a word counts at its first masked token.

    Args:
        right, baseline: [M] whether the model and the unigram baseline predict each token.
        words: [M] the index of each token's word, ascending.
        is_part: [M] True if the model sees another token of the word, which then does not count.
    """
    begins = np.diff(words, prepend=-1) > 0
    word = np.cumsum(begins) - 1
    is_first = begins & ~is_part
    size = np.bincount(word) if len(word) else np.zeros(0, np.int64)

    def all_right(tokens: NDArray[np.bool_]) -> np.ndarray:
        is_whole = np.bincount(word, tokens, len(size)) == size
        return is_first & is_whole[word]

    is_split = is_first & (size[word] > 1)
    return {
        "words": is_first,
        "words_right": all_right(right),
        "unigram_words_right": all_right(baseline),
        "split_words": is_split,
        "split_words_right": is_split & all_right(right),
    }


def evaluate_mlm(
    model: MaskedLanguageModel,
    text: PinnedText,
    counts: NDArray[np.int64],
    characters: NDArray[np.int64],
    data: DataFacts,
) -> SuiteResult:
    """Return all scores of a model on a text; see `measure_masked_lm` and `describe_tables`.

    Raises:
        InputError: the text is so short that no token is masked.
    """
    return describe_tables(measure_masked_lm(model, text, counts, characters), text, data)


def describe_tables(tables: MaskedTables, text: PinnedText, data: DataFacts) -> SuiteResult:
    """Return the scores from the sums of `measure_masked_lm`.

    `data` is the name and fingerprint of the text. Raise InputError if no token is masked.
    """
    if not tables.tokens.totals.get("count"):
        raise InputError(
            f"{data['name']} is too short: none of its tokens is masked. Give more text."
        )
    settings = {
        "masks_sha256": tables.masks,
        "seed": PINNED_SEED,
        "rate": PINNED_MASKING.rate,
        "corruption": [0.8, 0.1, 0.1],
        "mask_only_corruption": [1.0, 0.0, 0.0],
        "whole_words_corruption": [1.0, 0.0, 0.0],
        "max_seq_length": text.config.max_seq_length,
        "special_tokens": text.config.special_tokens,
        "packed": text.config.packed,
        "num_rows": len(tables.tokens.values),
        "interval": describe_bootstrap("rows"),
    }
    formulas = [*FORMULAS, *group_formulas(tables.num_decades)]
    scores = [*tables.tokens.score(formulas), *tables.mask_only.score(MASK_ONLY_FORMULAS)]
    scores += tables.words.score(WORD_FORMULAS)
    return SuiteResult("mlm", data, settings, tuple(scores))


def _perplexity(loss: str) -> Formula:
    return lambda sums: np.exp(sums[loss] / sums["count"])


def _bits_per_character(loss: str) -> Formula:
    return lambda sums: sums[loss] / sums["characters"] / math.log(2)


def _calibration_error(sums: Sums) -> np.ndarray:
    """Return the expected calibration error (Guo et al. 2017, arXiv 1706.04599)."""
    bins = range(_NUM_CONFIDENCE_BINS)
    gaps = [abs(sums[f"{b}_confidence"] - sums[f"{b}_right"]) for b in bins]
    return sum(gaps[1:], gaps[0]) / sums["count"]


def _mean(
    name: str, column: str, count: str = "count", group: str = "", has_baseline: bool = True
) -> ScoreFormula:
    """Return the formula of a mean over a group of tokens, with that of the unigram baseline."""
    count = group + count
    baseline = ratio(f"{group}unigram_{column}", count) if has_baseline else None
    return ScoreFormula(name, ratio(group + column, count), count, baseline)


BITS_PER_CHARACTER = ScoreFormula(
    "bits_per_character",
    _bits_per_character("text_loss"),
    "characters",
    _bits_per_character("unigram_text_loss"),
)
FORMULAS = (
    _mean("loss", "loss"),
    ScoreFormula("perplexity", _perplexity("loss"), "count", _perplexity("unigram_loss")),
    BITS_PER_CHARACTER,
    _mean(ACCURACY.suite_name, "top1", group="mask_"),
    _mean(ACCURACY_TOP5.suite_name, "top5", group="mask_"),
    *(_mean("masked_accuracy" + (f"_top{k}" if k > 1 else ""), f"top{k}") for k in _TOPS),
    _mean("mean_reciprocal_rank", "reciprocal_rank"),
    # No interval: noise can only increase a sum of magnitudes, so resampling biases it upward.
    ScoreFormula("calibration_error", _calibration_error, "count", has_interval=False),
)
MASK_ONLY_FORMULAS = (
    _mean("mask_only/loss", "loss"),
    _mean("mask_only/masked_accuracy", "top1"),
    _mean("mask_only/masked_accuracy_top5", "top5"),
)
WORD_FORMULAS = (
    _mean("whole_words/word_accuracy", "words_right", "words"),
    _mean(
        *("whole_words/split_word_accuracy", "split_words_right", "split_words"), has_baseline=False
    ),
    _mean("whole_words/masked_accuracy", "top1"),
    _mean("whole_words/loss", "loss", has_baseline=False),
)


def group_formulas(num_decades: int) -> list[ScoreFormula]:
    """Return the formulas by input token and by training count that `FORMULAS` does not have."""
    decades = {f"frequency_1e{decade}": decade for decade in range(num_decades)}
    groups = {f"seen_{seen}": f"{seen}_" for seen in _SEEN}
    groups |= {title: f"{decade}_" for title, decade in decades.items()}
    formulas = [
        _mean(f"{title}/{score}", column, group=group)
        for title, group in groups.items()
        for score, column in (("masked_accuracy", "top1"), ("loss", "loss"))
    ]
    formulas += [
        _mean(f"{title}/{ACCURACY.name}", "top1", group=f"mask_{decade}_")
        for title, decade in decades.items()
    ]
    known = {formula.name for formula in FORMULAS}
    return [formula for formula in formulas if formula.name not in known]


def _check(request: Request) -> None:
    if not any(batch.num_predictions for batch in pin_text(request).batches()):
        raise request.too_short("none of its tokens is masked")


def _score(request: Request) -> SuiteResult:
    text = pin_text(request)
    result = describe_tables(measure_request(request), text, request.need_text().data)
    is_cut = result.settings["num_rows"] >= text.num_positions // text.config.max_seq_length
    return mark_fast(result, request.is_fast and is_cut)


HEADLINES = (*(line.suite_name for line in MASKED_LM_SCORES), BITS_PER_CHARACTER.name)
MLM = Suite(
    name="mlm",
    needs="text",
    full=262_144,
    fast=32_768,
    check=_check,
    score=_score,
    headlines=tuple(f"mlm/{name}" for name in HEADLINES),
)
