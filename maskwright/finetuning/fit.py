"""Training a classifier on labelled examples, with the best weights of the run kept.

R examples a step, K labels.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskwright.finetuning.batches import collate, find_targets, find_wanted
from maskwright.finetuning.config import FinetuneConfig, Task
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.loop import Loop, Patience, Progress, Report
from maskwright.finetuning.metrics import Metric
from maskwright.finetuning.network import rescaled_output
from maskwright.finetuning.scoring import compute_loss, is_better, is_perfect, score_model
from maskwright.model.classifier import Classifier
from maskwright.progress import Pulse
from maskwright.train.device import autocast


@dataclass(frozen=True)
class Material:
    """What a run trains and is scored on.

    Attributes:
        metrics: what is reported; `deciding` is the one that decides.
        pad_id: of the tokenizer.
        test: what the weights that were chosen on `valid` are scored on, if there is such.
    """

    labels: Labels
    train: Examples
    valid: Examples
    metrics: Sequence[Metric]
    deciding: str
    pad_id: int
    test: Examples | None = None


@dataclass
class Fitted:
    """One run: its best scores on the validation examples, and how it came there.

    Attributes:
        test_scores: of the same weights on the test examples, if there are any.
    """

    seed: int
    scores: dict[str, float] = field(default_factory=dict[str, float])
    test_scores: dict[str, float] = field(default_factory=dict[str, float])
    best_step: int = 0
    num_steps: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


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
        pulse: Pulse | None = None,
    ) -> None:
        self.model, self.material, self.report = model, material, report
        self.config = config.settle(len(material.train), model.config.hidden_size)
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
        self.loop = Loop(self.config, material.train.lengths, seed, self.device, pulse or Pulse())
        self._best: dict[str, Tensor] = {}

    def run(self) -> Fitted:
        """Trains to the end of the budget, or until no score gets better.

        Raises:
            TrainingError: a loss that is not finite.
        """
        patience = Patience(self.config, self.loop.num_steps)
        for moment in self.loop.run(self.model, self._compute_loss):
            self.fitted.num_steps = moment.step
            is_progress = self._evaluate(moment)
            self.fitted.seconds = moment.seconds
            if patience.is_over(moment.step, is_progress):
                break
        self.model.load_state_dict(self._best)
        if self.material.test is not None:
            self.fitted.test_scores = self._score(self.material.test)
        return self.fitted

    def _compute_loss(self, numbers: list[int]) -> Tensor:
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
        return compute_loss(self.task, logits.float(), targets, self.weights)

    def _evaluate(self, moment: Progress) -> bool:
        """Scores the model; keeps its weights if it is the best one so far.

        Returns:
            Whether that is worth going on for: not if only the loss gets lower where every answer
            was right already, which it would do to the end of the budget.
        """
        material, fitted = self.material, self.fitted
        was_perfect = bool(fitted.scores) and is_perfect(material.deciding, fitted.scores)
        with rescaled_output(self.model, self.center, self.spread):
            scores = self._score(material.valid)
            improved = not fitted.scores or is_better(material.deciding, scores, fitted.scores)
            if improved:
                fitted.scores, fitted.best_step = scores, moment.step
                state = self.model.state_dict()
                self._best = {name: tensor.detach().clone() for name, tensor in state.items()}
        fitted.history.append({"seed": fitted.seed, **asdict(moment), **scores})
        self.report(fitted.history[-1])
        return improved and not was_perfect

    def _score(self, examples: Examples) -> dict[str, float]:
        material = self.material
        return score_model(
            self.model,
            examples,
            material.labels,
            material.metrics,
            material.pad_id,
            self.config.precision,
            self.loop.pulse,
        )
