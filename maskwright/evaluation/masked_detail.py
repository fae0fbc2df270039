"""What a model says of every hidden token, added up by row: the pass behind the masked-LM suite.

Logits exist for a few thousand tokens at a time at most. M hidden tokens of a batch, V vocabulary.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.evaluation.pinned import MASK_ONLY, PINNED_MASKING, WORD_MASKING, PinnedText
from maskwright.evaluation.sums import SumTable, SumTableBuilder
from maskwright.inference.text_model import check_finite
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.token_text import BLANK

TOPS = (1, 5, 10)
NUM_CONFIDENCE_BINS = 15
SEEN = ("mask", "random", "kept")  # what stands in the place of a hidden token
_LOGITS_AT_ONCE = 1 << 24  # 64 MB of fp32

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Answers:
    """About M hidden tokens: what the model thinks of the right one, and of its best one.

    Attributes:
        loss: [M] -log p of the right token, in nats.
        rank: [M] its place, from 1, among all tokens by falling logit; of equal ones the one with
            the smaller id comes first.
        confidence: [M] the probability of the most likely token.
    """

    loss: NDArray[np.float64]
    rank: NDArray[np.int64]
    confidence: NDArray[np.float64]


class Unigram:
    """Guessing by the token frequencies of the training text, one added to each count.

    Args:
        counts: [V], 0 for what can never be a label.

    Attributes:
        loss: [V] -log of each token's frequency.
        rank: [V] its place by falling frequency, from 1; of equal ones the smaller id first.
        decade: [V] the power of ten below its count; counts below 10 are in decade 0.
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        frequencies = counts.astype(np.float64) + 1
        self.loss = -np.log(frequencies / frequencies.sum())
        self.rank = np.empty(len(counts), np.int64)
        self.rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
        self.decade = np.array([len(str(count)) - 1 for count in counts.tolist()])
        self.num_decades = int(self.decade.max()) + 1


@dataclass(frozen=True)
class MaskedTables:
    """All that is kept of a model's answers on a text, and which masks they were.

    Attributes:
        tokens: sums by row with 15 % of the tokens hidden, 80/10/10.
        mask_only: the same tokens hidden, all of them behind [MASK].
        words: the same with whole words hidden.
        masks: sha256 of the hidden tokens and their places: equal where models had equal tasks.
        num_decades: of the training counts of all tokens.
    """

    tokens: SumTable
    mask_only: SumTable
    words: SumTable
    masks: str
    num_decades: int


def measure_masked_lm(
    model: MaskedLanguageModel,
    text: PinnedText,
    counts: NDArray[np.int64],
    characters: NDArray[np.int64],
) -> MaskedTables:
    """Three passes over the text: tokens hidden in two ways, then words.

    Args:
        model: in evaluation mode, on any device.
        counts: [V] training counts of the tokens, 0 for what can never be a label.
        characters: [V] characters of text that each token stands for; `BLANK` for blanks alone,
            which some tokenizers drop: they count neither as text nor as loss where models of
            different tokenizers are compared.
    """
    unigram, digest = Unigram(counts), hashlib.sha256()
    mask_id = text.vocabulary.mask_id
    tokens = SumTableBuilder(_token_names(unigram))
    mask_only, words = SumTableBuilder(_MASK_ONLY_NAMES), SumTableBuilder(_WORD_NAMES)
    for batch in text.batches(PINNED_MASKING):
        places, labels = hidden_tokens(batch)
        digest.update(places.numpy().tobytes() + labels.numpy().tobytes())
        answers = answer(model, batch, places, labels)
        seen = batch.input_ids[places].numpy()
        values = _describe_tokens(answers, labels.numpy(), seen, mask_id, unigram, characters)
        _add(tokens, batch, places, values)
    for batch in text.batches(MASK_ONLY):
        places, labels = hidden_tokens(batch)
        answers = answer(model, batch, places, labels)
        _add(mask_only, batch, places, _describe_mask_only(answers, labels.numpy(), unigram))
    for batch, word_of_slot in text.batches_with_words(WORD_MASKING):
        places, labels = hidden_tokens(batch)
        answers = answer(model, batch, places, labels)
        right = answers.rank == 1
        baseline = unigram.rank[labels.numpy()] == 1
        values = _describe_words(answers.loss, right, baseline, word_of_slot[places.numpy()])
        _add(words, batch, places, values)
    return MaskedTables(
        tokens.build(),
        mask_only.build(),
        words.build(),
        digest.hexdigest(),
        unigram.num_decades,
    )


def hidden_tokens(batch: Batch) -> tuple[Tensor, Tensor]:
    """Places in [T] and ids of the hidden tokens in the order of the text: [M], [M]."""
    used = batch.masked_labels != IGNORED
    places, labels = batch.masked_positions[used], batch.masked_labels[used]
    order = places.argsort()
    return places[order], labels[order]


@torch.no_grad()
def answer(model: MaskedLanguageModel, batch: Batch, places: Tensor, labels: Tensor) -> Answers:
    """What the model says at some places [M] of a batch on the CPU."""
    device = next(model.parameters()).device
    moved, labels = batch.to(device), labels.to(device)
    wanted = model.predictors(places).to(device)
    hidden = model.encoder(moved.input_ids, moved.context, output_positions=wanted)
    return Answers(*rank_labels(model, hidden, labels))


@torch.no_grad()
def rank_labels(
    model: MaskedLanguageModel, hidden: Tensor, labels: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """What `Answers` has, for vectors [M, D] and the right tokens [M].

    Raises:
        ModelFolderError: the model gives no finite probabilities.
    """
    at_once = max(1, _LOGITS_AT_ONCE // model.config.vocab_size)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for vectors, right in zip(hidden.split(at_once), labels.split(at_once), strict=True):
        logits = model.head(vectors).float()
        own = logits.gather(1, right[:, None])
        ids = torch.arange(logits.shape[1], device=logits.device)
        before = (logits > own) | ((logits == own) & (ids < right[:, None]))
        confidence = (logits.amax(1) - logits.logsumexp(1)).exp()
        losses = F.cross_entropy(logits, right, reduction="none")
        check_finite(losses)
        parts.append((losses, before.sum(1) + 1, confidence))
    loss, rank, confidence = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return loss.astype(np.float64), rank, confidence.astype(np.float64)


def _add(table: SumTableBuilder, batch: Batch, places: Tensor, values: Values) -> None:
    rows = places.numpy() // batch.context.row_length
    table.add(rows, len(batch.input_ids) // batch.context.row_length, values)


def _token_names(unigram: Unigram) -> list[str]:
    return [
        *("count", "loss", "reciprocal_rank", "characters"),
        *("unigram_loss", "unigram_reciprocal_rank", "text_loss", "unigram_text_loss"),
        *(f"{whose}top{k}" for k in TOPS for whose in ("", "unigram_")),
        *(f"{seen}_{what}" for seen in SEEN for what in ("count", "loss", *_GROUP)),
        *(f"{d}_{what}" for d in range(unigram.num_decades) for what in ("count", "loss", *_GROUP)),
        *(f"{b}_{what}" for b in range(NUM_CONFIDENCE_BINS) for what in _CALIBRATION),
    ]


_GROUP = ("top1", "unigram_loss", "unigram_top1")
_CALIBRATION = ("confidence", "right")
_BASELINES = ("loss", "top1", "top5")
_MASK_ONLY_NAMES = ("count", "loss", "top1", "top5", *(f"unigram_{what}" for what in _BASELINES))
_WORD_NAMES = (
    *("count", "loss", "top1", "unigram_top1"),
    *("words", "words_right", "unigram_words_right"),
    *("split_words", "split_words_right"),
)


def _describe_tokens(
    answers: Answers,
    labels: NDArray[np.int64],
    seen: NDArray[np.int64],
    mask_id: int,
    unigram: Unigram,
    characters: NDArray[np.int64],
) -> Values:
    """What each of M hidden tokens adds to the sums of its row."""
    unigram_rank = unigram.rank[labels]
    is_text = characters[labels] != BLANK
    values: Values = {
        "count": np.ones(len(labels)),
        "loss": answers.loss,
        "reciprocal_rank": 1 / answers.rank,
        "characters": is_text * characters[labels],
        "text_loss": is_text * answers.loss,
        "unigram_text_loss": is_text * unigram.loss[labels],
        "unigram_loss": unigram.loss[labels],
        "unigram_reciprocal_rank": 1 / unigram_rank,
    }
    for k in TOPS:
        values[f"top{k}"], values[f"unigram_top{k}"] = answers.rank <= k, unigram_rank <= k
    is_mask, is_kept = seen == mask_id, seen == labels
    groups = {"mask": is_mask, "random": ~is_mask & ~is_kept, "kept": is_kept}
    groups |= {str(d): unigram.decade[labels] == d for d in range(unigram.num_decades)}
    for name, member in groups.items():
        for what in ("count", "loss", *_GROUP):
            values[f"{name}_{what}"] = member * values[what]
    # Bins (0, 1/15], (1/15, 2/15], … of equal width.
    bins = np.ceil(answers.confidence * NUM_CONFIDENCE_BINS).astype(np.int64) - 1
    bins = bins.clip(0, NUM_CONFIDENCE_BINS - 1)
    for number in range(NUM_CONFIDENCE_BINS):
        member = bins == number
        values[f"{number}_confidence"] = member * answers.confidence
        values[f"{number}_right"] = member & (answers.rank == 1)
    return values


def _describe_mask_only(answers: Answers, labels: NDArray[np.int64], unigram: Unigram) -> Values:
    """What each of M tokens behind [MASK] adds to the sums of its row."""
    rank = unigram.rank[labels]
    return {
        "count": np.ones(len(labels)),
        "loss": answers.loss,
        "top1": answers.rank == 1,
        "top5": answers.rank <= 5,
        "unigram_loss": unigram.loss[labels],
        "unigram_top1": rank == 1,
        "unigram_top5": rank <= 5,
    }


def _describe_words(
    loss: NDArray[np.float64],
    right: NDArray[np.bool_],
    baseline: NDArray[np.bool_],
    words: NDArray[np.int64],
) -> Values:
    """The same for whole words; what a word adds is added by its first hidden token.

    Args:
        words: [M] the number of each token's word, rising.
    """
    is_first = np.diff(words, prepend=-1) > 0
    word = np.cumsum(is_first) - 1
    size = np.bincount(word) if len(word) else np.zeros(0, np.int64)

    def all_right(tokens: NDArray[np.bool_]) -> np.ndarray:
        is_whole = np.bincount(word, tokens, len(size)) == size
        return is_first & is_whole[word]

    is_split = is_first & (size[word] > 1)
    return {
        "count": np.ones(len(words)),
        "loss": loss,
        "top1": right,
        "unigram_top1": baseline,
        "words": is_first,
        "words_right": all_right(right),
        "unigram_words_right": all_right(baseline),
        "split_words": is_split,
        "split_words_right": is_split & all_right(right),
    }
