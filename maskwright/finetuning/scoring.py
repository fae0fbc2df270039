"""Answers of a model to examples, and how good they are. N examples, K labels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.finetuning.batches import collate, find_wanted, plan_scoring
from maskwright.finetuning.config import Task
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.metrics import LOWER_IS_BETTER, TASK_METRICS, Metric, compute_metric
from maskwright.finetuning.spans import score_spans
from maskwright.model.classifier import Classifier
from maskwright.progress import Pulse
from maskwright.train.config import Precision
from maskwright.train.device import autocast

VALID_LOSS = "valid_loss"
_BATCH_TOKENS = {"cpu": 2048}
_BATCH_TOKENS_ELSEWHERE = 32_768


def batch_tokens_on(device: torch.device) -> int:
    """Tokens that are scored together."""
    return _BATCH_TOKENS.get(device.type, _BATCH_TOKENS_ELSEWHERE)


@torch.inference_mode()
def compute_logits(
    model: Classifier,
    examples: Examples,
    pad_id: int,
    precision: Precision,
    pulse: Pulse | None = None,
) -> list[NDArray[np.float32]]:
    """The logits of each example, in order: [K] of a text, [words, K] of a sentence's words.

    Args:
        pulse: is told how many have been scored.
    """
    num_scored, pulse = 0, pulse or Pulse()
    device = next(model.parameters()).device
    model.eval()
    found: list[Any] = [None] * len(examples)
    for numbers in plan_scoring(examples.lengths, batch_tokens_on(device)):
        batch = collate([examples.inputs[number] for number in numbers], pad_id).to(device)
        wanted = find_wanted(examples, numbers, batch.context.row_length)
        wanted = None if wanted is None else wanted.to(device)
        with autocast(precision, device):
            logits = model(batch.input_ids, batch.context, batch.token_type_ids, wanted)
        for number, part in zip(numbers, _split(logits, examples, numbers), strict=True):
            found[number] = part.float().cpu().numpy()
        num_scored += len(numbers)
        pulse.beat(f"  {num_scored:,} of {len(examples):,} examples scored")
    return found


def _split(
    logits: torch.Tensor, examples: Examples, numbers: Sequence[int]
) -> Iterator[torch.Tensor]:
    if examples.places is None:
        return iter(logits)
    return iter(logits.split([len(examples.places[number]) for number in numbers]))


def decide(task: Task, logits: NDArray[np.float32]) -> NDArray[Any]:
    """Answers to logits [N, K]: numbers of labels [N], 0 or 1 of each [N, K], or numbers [N]."""
    if task == "regression":
        return logits[:, 0]
    return (logits > 0).astype(np.float32) if task == "multilabel" else logits.argmax(1)


def list_metrics(task: Task, extra: Sequence[Metric] = ()) -> tuple[Metric, ...]:
    """What is reported of a task; the first decides which weights are kept."""
    return tuple(dict.fromkeys((*extra, *TASK_METRICS[task])))


def compute_loss(
    task: Task, logits: Tensor, targets: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The mean loss of examples: cross-entropy of labels, of each label, or the squared error."""
    if task == "regression":
        return F.mse_loss(logits[:, 0], targets)
    if task == "multilabel":
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)
    return F.cross_entropy(logits, targets, weight=weights)


def score_answers(
    metrics: Sequence[Metric], targets: NDArray[Any], answers: NDArray[Any]
) -> dict[str, float]:
    """The metrics of answers to texts."""
    return {name: compute_metric(name, targets, answers) for name in metrics}


def score_tags(
    labels: Labels, targets: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Of entities F1, precision and recall, and the accuracy of all tags."""
    true, found = ([[labels.names[n] for n in one] for one in each] for each in (targets, answers))
    scores, kinds = score_spans(true, found)
    right = sum(
        t == f for each in zip(true, found, strict=True) for t, f in zip(*each, strict=True)
    )
    num_words = sum(map(len, true))
    return {
        "span_f1": scores.f1,
        "span_precision": scores.precision,
        "span_recall": scores.recall,
        "accuracy": right / max(1, num_words),
        **{f"span_f1/{kind}": each.f1 for kind, each in kinds.items()},
    }


def score_model(
    model: Classifier,
    examples: Examples,
    labels: Labels,
    metrics: Sequence[Metric],
    pad_id: int,
    precision: Precision,
    pulse: Pulse | None = None,
) -> dict[str, float]:
    """The metrics of a model on examples, and its loss on them; tags by whole sentences."""
    logits = compute_logits(model, examples, pad_id, precision, pulse)
    if examples.sentences is not None:
        targets = np.concatenate(examples.targets)
        answers = examples.sentences.join([one.argmax(1).tolist() for one in logits])
        scores = score_tags(labels, examples.sentences.targets, answers)
        stacked = np.concatenate(logits)
    else:
        targets, stacked = np.asarray(examples.targets), np.stack(logits)
        scores = score_answers(metrics, targets, decide(labels.task, stacked))
    loss = compute_loss(labels.task, torch.from_numpy(stacked), torch.from_numpy(targets))
    return {**scores, VALID_LOSS: loss.item()}


def is_better(metric: str, scores: Mapping[str, float], than: Mapping[str, float]) -> bool:
    """Whether a metric is better, or equal with a lower loss.

    Small encoders stay for a while where they always give the most frequent answer. The metric says
    nothing of their progress there, the loss does.
    """
    ours, theirs = scores[metric], than[metric]
    if ours == theirs:
        return scores[VALID_LOSS] < than[VALID_LOSS]
    return beats(metric, ours, theirs)


def beats(metric: str, ours: float, theirs: float) -> bool:
    """Whether one value of a metric is better than another."""
    return ours < theirs if metric in LOWER_IS_BETTER else ours > theirs


def is_perfect(metric: str, scores: Mapping[str, float]) -> bool:
    """Whether a metric can be no better."""
    return scores[metric] == 0 if metric in LOWER_IS_BETTER else scores[metric] >= 1


def describe_scores(scores: Mapping[str, float]) -> str:
    """The scores in one line, without those of single kinds of entities."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if "/" not in name)
