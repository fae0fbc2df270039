"""Answers of a model to examples, and how good they are. N examples, K labels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.finetune.batches import collate, find_wanted, plan_scoring
from maskwright.finetune.config import Task
from maskwright.finetune.examples import Examples
from maskwright.finetune.labels import Labels
from maskwright.finetune.metrics import LOWER_IS_BETTER, TASK_METRICS, Metric, compute_metric
from maskwright.finetune.spans import score_spans
from maskwright.model.classifier import Classifier
from maskwright.train.config import Precision
from maskwright.train.device import autocast

_BATCH_TOKENS = {"cpu": 2048}
_BATCH_TOKENS_ELSEWHERE = 32_768


@torch.inference_mode()
def compute_logits(
    model: Classifier, examples: Examples, pad_id: int, precision: Precision
) -> list[NDArray[np.float32]]:
    """The logits of each example, in order: [K] of a text, [words, K] of a sentence's words."""
    device = next(model.parameters()).device
    model.eval()
    found: list[Any] = [None] * len(examples)
    batch_tokens = _BATCH_TOKENS.get(device.type, _BATCH_TOKENS_ELSEWHERE)
    for numbers in plan_scoring(examples.lengths, batch_tokens):
        batch = collate([examples.inputs[number] for number in numbers], pad_id).to(device)
        wanted = find_wanted(examples, numbers, batch.context.row_length)
        wanted = None if wanted is None else wanted.to(device)
        with autocast(precision, device):
            logits = model(batch.input_ids, batch.context, batch.token_type_ids, wanted)
        for number, part in zip(numbers, _split(logits, examples, numbers), strict=True):
            found[number] = part.float().cpu().numpy()
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


def score_answers(
    labels: Labels, metrics: Sequence[Metric], targets: NDArray[Any], answers: NDArray[Any]
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
) -> dict[str, float]:
    """The metrics of a model on examples."""
    logits = compute_logits(model, examples, pad_id, precision)
    if isinstance(examples.targets, list):
        answers = [one.argmax(1).tolist() if len(one) else [] for one in logits]
        return score_tags(labels, examples.targets, answers)
    answers = decide(labels.task, np.stack(logits))
    return score_answers(labels, metrics, examples.targets, answers)


def is_better(metric: str, value: float, than: float) -> bool:
    """Whether a value of a metric is better than another one."""
    return value < than if metric in LOWER_IS_BETTER else value > than


def describe_scores(scores: Mapping[str, float]) -> str:
    """The scores in one line, without those of single kinds of entities."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if "/" not in name)
