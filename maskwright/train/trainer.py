"""The training loop: plan, load, step, log, validate, save.

`Trainer.fit` is the whole loop, in order, with nothing hooked in. Everything it needs is passed
in, so it knows neither files of text nor evaluation suites.
"""

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from maskwright.data.loader import LoadedStep, Prefetcher, StepRequest
from maskwright.errors import MaskwrightError
from maskwright.logs import Record
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.optim.build import Optimizers
from maskwright.train.checkpoint import Checkpoint, save_checkpoint
from maskwright.train.config import TrainConfig
from maskwright.train.ema import WeightAverage
from maskwright.train.plan import Planner, StepPlan
from maskwright.train.signals import StopRequest
from maskwright.train.state import TrainState
from maskwright.train.step import Objective, compute_gradients, seed_dropout, take_step


class Reporter(Protocol):
    """Where the loop's records go."""

    def report(self, record: Record, progress: float) -> None: ...


@dataclass
class Trainer:
    """A run in progress.

    Attributes:
        objective: the loss over `model`, compiled or not.
        validate: gives the scores of the current weights; its argument says whether the run is
            over.
        checkpoints: folder of the checkpoints; None saves none.
        last_scores: the record of the last validation of this process, None before it.

    Raises:
        MaskwrightError: from `fit`, when the loss or the gradient is not finite.
    """

    config: TrainConfig
    planner: Planner
    seed: int
    model: MaskedLanguageModel
    objective: Objective
    optimizers: Optimizers
    prefetcher: Prefetcher
    device: torch.device
    reporter: Reporter
    validate: Callable[[bool], dict[str, Any]]
    checkpoints: Path | None
    state: TrainState
    average: WeightAverage | None = None
    last_scores: Record | None = None
    _window: "_LogWindow" = field(init=False)
    _shapes: set[tuple[int, int]] = field(init=False, default_factory=set[tuple[int, int]])

    def __post_init__(self) -> None:
        self._window = _LogWindow(self.device)

    def fit(self) -> signal.Signals | None:
        """Trains until the budget is used up; returns the signal that stopped it before, if any."""
        self._window.restart_clock()
        resumed_at, clock = self.state.seconds, time.perf_counter()
        saved_at = clock
        with StopRequest() as stop:
            while self.progress < 1 and stop.signal is None:
                plan = self.planner.plan_step(self.progress)
                loaded = self.prefetcher.take(plan.request, self.state.position)
                self._prefetch_after(loaded)
                self._train_on(loaded, plan)
                self._count(loaded, resumed_at + time.perf_counter() - clock)
                self._log_if_due(loaded.request, plan.learning_rate_scale)
                self._validate_if_due()
                minutes = (time.perf_counter() - saved_at) / 60
                if minutes >= self.config.checkpoint_every_minutes:
                    self.save()
                    saved_at = time.perf_counter()
        self.save()
        return stop.signal if self.progress < 1 else None

    @property
    def progress(self) -> float:
        return self.state.progress(self.config)

    def _prefetch_after(self, loaded: LoadedStep) -> None:
        ahead = replace(self.state, step=self.state.step + 1, position=loaded.next_position)
        ahead = replace(ahead, tokens=self.state.tokens + loaded.num_tokens)
        progress = ahead.progress(self.config)
        if progress < 1:
            self.prefetcher.start(self.planner.plan_step(progress).request, ahead.position)

    def _train_on(self, loaded: LoadedStep, plan: StepPlan) -> None:
        seed_dropout(self.seed, self.state.step)
        self.model.train()
        loss, correct = compute_gradients(
            self.objective, loaded, self.device, self.config.precision
        )
        norm = take_step(
            self.model, self.optimizers, plan.learning_rate_scale, self.config.grad_clip
        )
        if self.average:
            self.average.update(self.model, self.state.step)
        self._window.add(loss, correct, norm, loaded)

    def _count(self, loaded: LoadedStep, seconds: float) -> None:
        shape = (loaded.request.row_length, loaded.request.micro_batch_rows)
        startup = 0.0 if shape in self._shapes else seconds - self.state.seconds
        self._shapes.add(shape)
        self.state = replace(
            self.state,
            step=self.state.step + 1,
            tokens=self.state.tokens + loaded.num_tokens,
            seconds=seconds,
            startup_seconds=self.state.startup_seconds + startup,
            position=loaded.next_position,
        )
        if startup:
            self._window.restart_clock()

    def _log_if_due(self, request: StepRequest, learning_rate_scale: float) -> None:
        if self.state.step % self.config.log_every_steps and self.progress < 1:
            return
        self._check_finite()
        record = {
            **self._counts("train"),
            **self._window.read(),
            "learning_rate": learning_rate_scale * self.optimizers.peak_learning_rate,
            "mask_rate": request.mask_rate,
            "row_length": request.row_length,
            "epoch": self.state.position.epoch,
        }
        self.reporter.report(record, self.progress)

    def _check_finite(self) -> None:
        if not self._window.is_finite:
            position = self.state.position
            raise MaskwrightError(
                f"the loss or its gradient is not finite at or before step {self.state.step} "
                f"(epoch {position.epoch}, row {position.row}): lower optim.learning_rate or "
                "optim.muon_learning_rate and start again, or resume from the last checkpoint"
            )

    def _validate_if_due(self) -> None:
        due = int(self.progress * self.config.num_validations + 1e-9)
        if due <= self.state.validations:
            return
        self.state = replace(self.state, validations=due)
        self.last_scores = {**self._counts("valid"), **self.scores(final=self.progress >= 1)}
        self.reporter.report(self.last_scores, self.progress)
        self._window.restart_clock()

    def scores(self, final: bool) -> dict[str, Any]:
        """What `validate` says of the weights that would be saved."""
        self.model.eval()
        with self.averaged_weights():
            return self.validate(final)

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Within this context the model has the weights to validate and save."""
        return self.average.applied(self.model) if self.average else nullcontext()

    def _counts(self, split: str) -> Record:
        state = self.state
        return {
            "split": split,
            "step": state.step,
            "tokens": state.tokens,
            "seconds": state.seconds,
        }

    def save(self) -> None:
        """Writes a checkpoint of the current step, unless it has gone to NaN."""
        if self.checkpoints is None:
            return
        self._check_finite()
        tensors = {
            "model": dict(self.model.named_parameters()),
            "optimizer": self.optimizers.state_tensors(),
        }
        if self.average:
            tensors["average"] = self.average.averages
        save_checkpoint(
            self.checkpoints,
            self.state.step,
            tensors,
            self.state.to_json(),
            self.config.keep_checkpoints,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Puts weights, optimizers and counts back to where the checkpoint was written."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(checkpoint.tensors["model"][name])
        self.optimizers.load_state_tensors(checkpoint.tensors["optimizer"])
        if self.average:
            # A run that begins to average when it is resumed begins with the weights it has.
            saved = checkpoint.tensors.get("average", checkpoint.tensors["model"])
            for name, average in self.average.averages.items():
                average.copy_(saved[name])
        state = TrainState.from_json(checkpoint.state)
        # Counted against the budget of now, which may be larger than when they were done.
        due = int(state.progress(self.config) * self.config.num_validations + 1e-9)
        self.state = replace(state, validations=min(state.validations, due))


class _LogWindow:
    """Sums since the last training record, kept on the device until they are read."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._reset()

    def _reset(self) -> None:
        self._sums = torch.zeros(3, device=self._device)
        self._steps = self._tokens = self._predictions = self._timed_tokens = 0
        self._clock = time.perf_counter()

    @property
    def is_finite(self) -> bool:
        """Whether all losses and gradients since the last record are; waits for the device."""
        return bool(self._sums.isfinite().all())

    def restart_clock(self) -> None:
        """Leaves what came before (compiling, validation) out of the tokens per second."""
        self._timed_tokens, self._clock = 0, time.perf_counter()

    def add(
        self, loss: torch.Tensor, correct: torch.Tensor, norm: torch.Tensor, loaded: LoadedStep
    ) -> None:
        self._sums += torch.stack([loss.float(), correct.float(), norm.float()])
        self._steps += 1
        self._tokens += loaded.num_tokens
        self._timed_tokens += loaded.num_tokens
        self._predictions += loaded.num_predictions

    def read(self) -> dict[str, float]:
        """Means since the last call."""
        loss, correct, norm = self._sums.tolist()  # waits for the device
        seconds = time.perf_counter() - self._clock
        means = {
            "loss": loss / self._steps,
            "masked_accuracy": correct / max(self._predictions, 1),
            "grad_norm": norm / self._steps,
            "tokens_per_second": self._timed_tokens / seconds if seconds > 0 else 0.0,
        }
        self._reset()
        return means
