"""The loop of every fine-tuning: rates that rise and fall, clipped gradients, scores on the way."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from maskwright.errors import TrainingError
from maskwright.finetuning.batches import plan_steps
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import group_parameters
from maskwright.optim.eager import AdamW
from maskwright.progress import Pulse

Report = Callable[[dict[str, Any]], None]


def scale_rate(step: int, num_steps: int, warmup_share: float) -> float:
    """The factor on all rates at a step from 0 on: a line up to 1, and one down to 0."""
    warmup = warmup_share * num_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (num_steps - step) / max(1.0, num_steps - warmup))


@dataclass(frozen=True)
class Progress:
    """A moment at which a model is to be scored.

    Attributes:
        loss: mean of the steps since the last such moment.
        seconds: since the beginning.
    """

    step: int
    epoch: float
    loss: float
    seconds: float


@dataclass(frozen=True)
class Loop:
    """How long a run takes, and at what rates; a function of the configuration.

    Args:
        lengths: tokens of each training example.
        pulse: is told of every step.
    """

    config: FinetuneConfig
    lengths: Sequence[int]
    seed: int
    device: torch.device
    pulse: Pulse = field(default_factory=Pulse)

    @property
    def steps_an_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.config.batch_size)

    @property
    def num_steps(self) -> int:
        """Steps of the whole run, if it is not ended before."""
        assert self.config.epochs is not None, "not settled"
        return max(1, math.ceil(self.config.epochs * self.steps_an_epoch))

    def run(self, module: nn.Module, compute: Callable[[list[int]], Tensor]) -> Iterator[Progress]:
        """Trains `module`, and stops at each moment at which it is to be scored.

        Args:
            compute: the loss of the examples with these numbers.

        Raises:
            TrainingError: a loss that is not finite.
        """
        torch.manual_seed(self.seed)
        config, began, losses = self.config, time.perf_counter(), list[float]()
        fused = self.device.type in ("cpu", "cuda")
        optimizer = AdamW(group_parameters(module, config), fused=fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: scale_rate(step, self.num_steps, config.warmup_share)
        )
        every = max(1, round(self.steps_an_epoch / config.evaluations_an_epoch))
        steps = plan_steps(self.lengths, config.batch_size, self.num_steps, self.seed)
        for step, numbers in enumerate(steps, start=1):
            module.train()
            loss = compute(numbers)
            loss.backward()
            if config.grad_clip:
                nn.utils.clip_grad_norm_(module.parameters(), config.grad_clip)
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                raise TrainingError(
                    f"the loss of step {step} is not finite. Try a lower learning_rate than "
                    f"{config.learning_rate}."
                )
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            self.pulse.beat(
                f"  seed {self.seed}  step {step:,} of {self.num_steps:,}  loss {losses[-1]:.4f}"
            )
            if step % every == 0 or step == self.num_steps:
                seconds = time.perf_counter() - began
                yield Progress(step, step / self.steps_an_epoch, sum(losses) / len(losses), seconds)
                losses = []


class Patience:
    """Ends a run whose scores get no better; those of the warm-up do not count.

    Args:
        config: `patience` so many scores in a row; 0: never.
    """

    def __init__(self, config: FinetuneConfig, num_steps: int) -> None:
        self.config, self.warmup = config, config.warmup_share * num_steps
        self._waited = 0

    def is_over(self, step: int, improved: bool) -> bool:
        """Whether to stop after this score."""
        self._waited = 0 if improved or step < self.warmup else self._waited + 1
        return 0 < self.config.patience <= self._waited
