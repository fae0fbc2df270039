"""Training a classifier on labelled examples, with the best weights of the run kept.

R examples a step, K labels.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.errors import TrainingError
from maskwright.finetune.batches import collate, find_targets, find_wanted, plan_steps
from maskwright.finetune.config import FinetuneConfig, Task
from maskwright.finetune.examples import Examples
from maskwright.finetune.labels import Labels
from maskwright.finetune.metrics import Metric
from maskwright.finetune.network import group_parameters, rescaled_output
from maskwright.finetune.scoring import is_better, score_model
from maskwright.model.classifier import Classifier
from maskwright.train.device import autocast

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Material:
    """What a run trains and is scored on.

    Attributes:
        metrics: what is reported; `deciding` is the one that decides.
        pad_id: of the tokenizer.
    """

    labels: Labels
    train: Examples
    valid: Examples
    metrics: Sequence[Metric]
    deciding: str
    pad_id: int


@dataclass
class Fitted:
    """One run: its best scores on the validation examples, and how it came there."""

    seed: int
    scores: dict[str, float] = field(default_factory=dict[str, float])
    best_step: int = 0
    num_steps: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def compute_loss(task: Task, logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """The mean loss of a step: cross-entropy of labels, of each label, or the squared error."""
    if task == "regression":
        return F.mse_loss(logits[:, 0], targets)
    if task == "multilabel":
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)
    return F.cross_entropy(logits, targets, weight=weights)


def scale_rate(step: int, num_steps: int, warmup_share: float) -> float:
    """The factor on all rates at a step from 0 on: a line up to 1, and one down to 0."""
    warmup = warmup_share * num_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (num_steps - step) / max(1.0, num_steps - warmup))


class Fitting:
    """One run of fine-tuning; afterwards the model has the weights that scored best.

    Numbers are learned as ``(y - mean) / deviation``, which the output then takes back.
    """

    def __init__(
        self,
        model: Classifier,
        material: Material,
        config: FinetuneConfig,
        seed: int,
        report: Report = lambda record: None,
    ) -> None:
        self.model, self.material, self.config, self.report = model, material, config, report
        self.device = next(model.parameters()).device
        self.fitted = Fitted(seed)
        labels, targets = material.labels, material.train.targets
        self.task: Task = labels.task
        self.center, self.spread = 0.0, 1.0
        if self.task == "regression":
            self.center = float(np.mean(targets))
            self.spread = float(np.std(targets)) or 1.0
        self.weights = None
        if config.class_weights and self.task != "regression":
            weights = labels.weigh(len(material.train))
            self.weights = torch.from_numpy(weights).to(self.device)
        self.steps_an_epoch = math.ceil(len(material.train) / config.batch_size)
        self.num_steps = max(1, math.ceil(config.epochs * self.steps_an_epoch))
        self._best: dict[str, Tensor] = {}

    def run(self) -> Fitted:
        """Trains to the end of the budget, or until no score gets better.

        Raises:
            TrainingError: a loss that is not finite.
        """
        torch.manual_seed(self.fitted.seed)
        fused = self.device.type in ("cpu", "cuda")
        optimizer = torch.optim.AdamW(group_parameters(self.model, self.config), fused=fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: scale_rate(step, self.num_steps, self.config.warmup_share)
        )
        every = max(1, round(self.steps_an_epoch / self.config.evaluations_an_epoch))
        began, losses, waited = time.perf_counter(), [], 0
        lengths, batch_size = self.material.train.lengths, self.config.batch_size
        steps = plan_steps(lengths, batch_size, self.num_steps, self.fitted.seed)
        for step, numbers in enumerate(steps, start=1):
            losses.append(self._train_on(numbers, step))
            self.fitted.num_steps = step
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step % every and step != self.num_steps:
                continue
            improved = self._evaluate(step, float(np.mean(losses)), time.perf_counter() - began)
            losses, waited = [], 0 if improved else waited + 1
            if self.config.patience and waited >= self.config.patience:
                break
        self.model.load_state_dict(self._best)
        self.fitted.seconds = time.perf_counter() - began
        return self.fitted

    def _train_on(self, numbers: list[int], step: int) -> float:
        """One step's gradients, clipped; the loss."""
        self.model.train()
        examples = self.material.train
        inputs = [examples.inputs[number] for number in numbers]
        batch = collate(inputs, self.material.pad_id).to(self.device)
        wanted = find_wanted(examples, numbers, batch.context.row_length)
        wanted = None if wanted is None else wanted.to(self.device)
        targets = find_targets(examples, numbers).to(self.device)
        if self.task == "regression":
            targets = (targets - self.center) / self.spread
        with autocast(self.config.precision, self.device):
            logits = self.model(batch.input_ids, batch.context, batch.token_type_ids, wanted)
        loss = compute_loss(self.task, logits.float(), targets, self.weights)
        loss.backward()
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss of step {step} is not finite. Try a lower learning_rate than "
                f"{self.config.learning_rate}."
            )
        return value

    def _evaluate(self, step: int, loss: float, seconds: float) -> bool:
        """Scores the model; keeps its weights if it is the best one so far."""
        material, fitted = self.material, self.fitted
        deciding = material.deciding
        with rescaled_output(self.model, self.center, self.spread):
            scores = score_model(
                self.model,
                material.valid,
                material.labels,
                material.metrics,
                material.pad_id,
                self.config.precision,
            )
            best = fitted.scores.get(deciding, math.nan)
            improved = not fitted.scores or is_better(deciding, scores[deciding], best)
            if improved or scores[deciding] == best:  # of two equal ones the later has learned more
                fitted.scores, fitted.best_step = scores, step
                state = self.model.state_dict()
                self._best = {name: tensor.detach().clone() for name, tensor in state.items()}
        epoch = step / self.steps_an_epoch
        record = {"seed": fitted.seed, "step": step, "epoch": epoch, "loss": loss, **scores}
        fitted.history.append({**record, "seconds": seconds})
        self.report(fitted.history[-1])
        return improved
