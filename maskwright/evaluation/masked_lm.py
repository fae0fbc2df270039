"""Masked-language-model scores on held-out text with pinned masks.

Masks are a function of (fixed seed, row), at 15 % with 80/10/10 unless stated otherwise, whatever
rate and strategy a run trains with. So two evaluations differ by the model alone, and models with
the same tokenizer can be compared on the same rows. Here are the scores that every validation of a
run needs, on all of its ranks; `suite_mlm` has all others.

T tokens of a batch, M masked tokens, D width, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.collate import SpecialIds, lay_out
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.data.loader import Corpus, RowSource, StepRequest
from maskwright.data.masking import IGNORED, Masker, Vocabulary
from maskwright.data.rows import DataPosition, Rows
from maskwright.distributed.world import ALONE, World
from maskwright.inference.text_model import check_finite
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.objectives.mlm import predict_masked

PINNED_SEED = 20_181_011  # not the run's seed: runs with different seeds share their masks
PINNED_MASKING = MaskingConfig(rate=0.15)
_ROWS_AT_ONCE = 32
_TOP = 5
_LOGITS_AT_ONCE = 1 << 24  # 64 MB of fp32


@dataclass(frozen=True)
class PinnedText:
    """A fixed sample of a corpus as rows, each once; `num_slots` is the most token slots."""

    corpus: Corpus
    config: DataConfig
    special: SpecialIds
    vocabulary: Vocabulary
    num_slots: int

    def batches(
        self, masking: MaskingConfig = PINNED_MASKING, world: World = ALONE
    ) -> Iterator[Batch]:
        """Yield the rows as masked batches; each rank gets its own rows of every batch."""
        for batch, _ in self._load(masking, world):
            yield batch

    def batches_with_words(
        self, masking: MaskingConfig
    ) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Yield masked batches and, for each of their [T] slots, the number of its word."""
        for batch, rows in self._load(masking, ALONE):
            clean = lay_out(rows, batch.row_length, self.corpus, self.special)
            yield batch, np.cumsum(clean.word_starts.reshape(-1), dtype=np.int64)

    def _load(self, masking: MaskingConfig, world: World) -> Iterator[tuple[Batch, Rows]]:
        """Yield batches, and the rows of all ranks in them; fewer slots are the first of more."""
        length, rate = self.config.max_seq_length, masking.highest_rate
        masker = Masker(masking, self.vocabulary)
        source = RowSource(self.corpus, self.config, self.special, masker, PINNED_SEED, world)
        planner, position = source.planner(length), DataPosition(length)
        remaining = max(1, self.num_slots // length)
        while remaining > 0:
            rows, _ = planner.plan_rows(position, min(_ROWS_AT_ONCE, remaining))
            in_epoch = rows.take(np.flatnonzero(rows.epochs == 0))
            if not len(in_epoch):
                return
            request = StepRequest(length, len(in_epoch), len(in_epoch), rate)
            loaded = source.load(request, position)
            yield loaded.micro_batches[0], in_epoch
            position = loaded.next_position
            remaining = remaining - len(rows) if len(in_epoch) == len(rows) else 0


def build_pinned_batches(
    corpus: Corpus,
    config: DataConfig,
    special: SpecialIds,
    vocabulary: Vocabulary,
    num_tokens: int,
    world: World = ALONE,
) -> Iterator[Batch]:
    """Return pinned masks in up to `num_tokens` slots of a corpus (see `PinnedText`)."""
    return PinnedText(corpus, config, special, vocabulary, num_tokens).batches(world=world)


@dataclass(frozen=True)
class MaskedLMScores:
    """Scores over all predictions of a validation.

    Attributes:
        loss: mean -log p of the masked tokens, in nats.
        masked_accuracy: share of the masked tokens that are the most likely token.
        masked_accuracy_top5: share that are among the five most likely.
        seen_mask_accuracy: the accuracy where the model's input is [MASK]; elsewhere it is a random
            token or the token itself, which the model can copy.
        unigram_loss: the loss of predicting the training text's token frequencies.
        unigram_accuracy: the accuracy of always predicting its most frequent token.
        num_predictions: masked tokens.
    """

    loss: float
    masked_accuracy: float
    masked_accuracy_top5: float
    seen_mask_accuracy: float
    unigram_loss: float
    unigram_accuracy: float
    num_predictions: int


def evaluate_masked_lm(
    model: MaskedLanguageModel,
    batches: Iterator[Batch],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World = ALONE,
) -> MaskedLMScores:
    """Return the scores of a model on the batches of all ranks; logits are dropped by batch.

    Args:
        model: one whose config has a mask_token_id.
        unigram_counts: [V] token counts of the training text; one is added to each.
    """
    return _to_scores(_sum_up(model, batches, unigram_counts, device, world))


def evaluate_sources(
    model: MaskedLanguageModel,
    batches: Mapping[str, Iterator[Batch]],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World = ALONE,
) -> tuple[MaskedLMScores, dict[str, MaskedLMScores]]:
    """Return the scores over all sources, and those of each; see `evaluate_masked_lm`."""
    sums = {
        name: _sum_up(model, own, unigram_counts, device, world) for name, own in batches.items()
    }
    total = [sum(column) for column in zip(*sums.values(), strict=True)]
    return _to_scores(total), {name: _to_scores(own) for name, own in sums.items()}


@torch.no_grad()
def _sum_up(
    model: MaskedLanguageModel,
    batches: Iterator[Batch],
    unigram_counts: NDArray[np.int64],
    device: torch.device,
    world: World,
) -> list[float]:
    """Return sums over the predictions of all ranks, in the order that `_to_scores` reads."""
    frequencies = torch.from_numpy(unigram_counts).double() + 1
    unigram_log = (frequencies / frequencies.sum()).log()
    most_frequent = frequencies.argmax()
    sums = torch.zeros(7, dtype=torch.float64)
    count = 0
    for batch in batches:
        batch = batch.to(device)
        used = batch.masked_labels != IGNORED
        labels = batch.masked_labels[used]
        logits = predict_masked(model, batch)[used]
        best = logits.topk(_TOP, dim=-1).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        is_mask = batch.input_ids[batch.masked_positions[used]] == model.config.mask_token_id
        seen = torch.stack([(best[:, 0] & is_mask).sum(), is_mask.sum()]).cpu()
        labels = labels.cpu()
        sums += torch.stack(
            [
                loss.cpu().double(),
                best[:, 0].sum().cpu(),
                best.any(dim=1).sum().cpu(),
                -unigram_log[labels].sum(),
                (labels == most_frequent).sum(),
                *seen,
            ]
        )
        count += len(labels)
    return [*world.sum(*sums.tolist(), count)]


def _to_scores(sums: Sequence[float]) -> MaskedLMScores:
    *totals, seen_correct, num_seen, count = sums
    loss, accuracy, top5, unigram_loss, unigram_accuracy = (t / max(count, 1) for t in totals)
    return MaskedLMScores(
        *(loss, accuracy, top5, seen_correct / max(num_seen, 1), unigram_loss, unigram_accuracy),
        int(count),
    )


@dataclass(frozen=True)
class TokenPredictions:
    """How a model predicts M masked tokens.

    Attributes:
        loss: [M] -log p of the right token, in nats.
        rank: [M] its rank, from 1, among all tokens by falling logit; ties by ascending id.
        confidence: [M] the probability of the most likely token.
    """

    loss: NDArray[np.float64]
    rank: NDArray[np.int64]
    confidence: NDArray[np.float64]


@torch.no_grad()
def rank_labels(model: MaskedLanguageModel, hidden: Tensor, labels: Tensor) -> TokenPredictions:
    """Compare hidden states [M, D] with the right tokens [M], a few thousand at a time.

    Raises:
        ModelFolderError: the model's probabilities are not finite.
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
    return TokenPredictions(loss.astype(np.float64), rank, confidence.astype(np.float64))


class Unigram:
    """Guessing by the token frequencies of the training text, one added to each count.

    Args:
        counts: [V], 0 for what can never be a label.

    Attributes:
        loss: [V] -log of each token's frequency.
        rank: [V] its rank by falling frequency, from 1; ties by ascending id.
        decade: [V] the power of ten below its count; counts below 10 are in decade 0.
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        frequencies = counts.astype(np.float64) + 1
        self.loss = -np.log(frequencies / frequencies.sum())
        self.rank = np.empty(len(counts), np.int64)
        self.rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
        self.decade = np.array([len(str(count)) - 1 for count in counts.tolist()])
        self.num_decades = int(self.decade.max()) + 1
