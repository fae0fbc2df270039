"""The parts of a training step, and the number of operators that reach the dispatcher in each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from maskwright.data.batch import Batch
from maskwright.train.step import (
    StepFigures,
    clip_gradients,
    compute_gradients,
    count_predictions,
    seed_dropout,
)
from maskwright.train.trainer import Trainer

PARTS = ("load", "forward", "backward", "clip", "figures", "update", "average")


class OperatorCounter(TorchDispatchMode):
    """Operators by part; `enter` begins a part. Works on the `meta` device as well."""

    def __init__(self) -> None:
        super().__init__()
        self.counts, self._part = Counter[str](), ""

    def enter(self, part: str) -> None:
        self._part = part

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[self._part] += 1
        return func(*args, **(kwargs or {}))


def do_step(trainer: Trainer, enter: Callable[[str], None]) -> None:
    """Do the next step as `Trainer.fit` does, in one process and without logging or validation.

    Args:
        enter: called with the name of each of `PARTS` when it begins, and with "" at the end.
    """
    state, parallel = trainer.state, trainer.parallel

    def forward(batch: Batch) -> Any:
        enter("forward")
        sums = parallel.loss(batch)
        enter("backward")
        return sums

    seed_dropout(trainer.seed, state.step)
    trainer.model.train()
    enter("load")
    plan = trainer.schedule.step_at(trainer.progress)
    loaded = trainer.prefetcher.take(plan.request, state.position)
    enter("forward")  # copies to the device are part of it
    predictions = count_predictions(loaded, trainer.terms)
    timed, precision = replace(parallel, loss=forward), trainer.config.precision
    own = compute_gradients(timed, loaded, trainer.terms, predictions, trainer.device, precision)
    enter("clip")
    norm = clip_gradients(trainer.model, trainer.config.grad_clip, parallel)
    enter("figures")
    figures = StepFigures.join(own, norm)
    enter("update")
    trainer.optimizers.scale_learning_rates(plan.learning_rate_scale)
    trainer.optimizers.step(figures.is_good)
    trainer.optimizers.zero_grad()
    if trainer.average is not None:
        enter("average")
        trainer.average.set_step(state.step)
        trainer.average.update(trainer.model, figures.is_good)
    enter("")
    tokens, position = state.tokens + loaded.num_tokens, loaded.next_position
    trainer.state = replace(state, step=state.step + 1, tokens=tokens, position=position)
