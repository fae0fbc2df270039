"""The training loop: plan, load, step, log, validate, save.

`Trainer.fit` is the whole loop, in order, without hooks. Everything that it needs is passed in, so
it depends neither on text files nor on evaluation suites. Every rank runs the same loop on its own
rows; before a decision, the ranks agree on its inputs (counts, the clock, a signal).
"""

import math
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from maskwright.data.loader import LoadedStep, Prefetcher
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import ALONE, World
from maskwright.errors import ShardError, TrainingError
from maskwright.logs import Record
from maskwright.model.masked_lm import Network
from maskwright.objectives.objective import Term
from maskwright.optim.build import Optimizers
from maskwright.train.capture import CapturedSteps
from maskwright.train.checkpoint import Checkpoint, CheckpointWriter
from maskwright.train.config import TrainConfig
from maskwright.train.log_window import LogWindow
from maskwright.train.schedule import Schedule, StepPlan
from maskwright.train.signals import AbandonedError, StopRequest
from maskwright.train.state import TrainState
from maskwright.train.step import Counts, StepFigures, StepParts, count_predictions, seed_dropout
from maskwright.train.weight_average import WeightAverage


class Reporter:
    """A receiver of the loop's records, within its context; this one reports nothing."""

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def report(self, record: Record, progress: float) -> None:
        """Receive a training or validation record."""

    def say(self, line: str) -> None:
        """Receive a line for the user."""

    def advance(self, counts: Record, progress: float) -> None:
        """Receive `counts` after every step and before every forward pass of a validation."""


# Returns the scores of the current weights, for a validation record; AbandonedError: it was asked
# to stop. Its arguments: the number of the validation in the run, from 1 (0 before the first step);
# True after the last step; a function, called before each forward pass, that says True to stop. In
# a run it is `maskwright.pretraining.validation.Validation`.
Validate = Callable[[int, bool, Callable[[], bool]], Record]


@dataclass(frozen=True)
class _UnreadStep:
    """A step that the device may not have finished. `step` counts from 1."""

    step: int
    loaded: LoadedStep
    num_predictions: Counts
    figures: StepFigures


@dataclass
class Trainer:
    """A run in progress.

    Attributes:
        parallel: the loss of `model`, compiled or not, on one rank or several.
        terms: the terms of that loss.
        checkpoints: the writer of checkpoints; None saves none.
        last_scores: the record of the last validation of this process; None before it.
        milestones: tokens after which the model is saved, by name.
        should_score_beginning: True to score the weights before the first step, as in the last
            validation, because they are not random.
        captures: True to record steps as CUDA graphs.

    Raises:
        TrainingError: from `fit`, if too many steps in a row were skipped because the loss or
            the gradient was not finite.
    """

    config: TrainConfig
    schedule: Schedule
    seed: int
    model: Network
    parallel: Parallel
    terms: Mapping[str, Term]
    optimizers: Optimizers
    prefetcher: Prefetcher
    device: torch.device
    reporter: Reporter
    validate: Validate
    checkpoints: CheckpointWriter | None
    state: TrainState
    average: WeightAverage | None = None
    world: World = ALONE
    last_scores: Record | None = None
    milestones: Mapping[str, int] = field(default_factory=dict[str, int])
    should_score_beginning: bool = False
    captures: bool = False
    _has_checkpoint: bool = field(init=False, default=False)
    _was_resumed: bool = field(init=False, default=False)
    _unread: "_UnreadStep | None" = field(init=False, default=None)
    _window: LogWindow = field(init=False)
    _shapes: set[tuple[int, ...]] = field(init=False, default_factory=set[tuple[int, ...]])

    def __post_init__(self) -> None:
        self._window = LogWindow(self.terms)

    @cached_property
    def _parts(self) -> StepParts:
        what = (self.model, self.parallel, self.terms, self.optimizers, self.average)
        how = (self.config.precision, self.config.grad_clip)
        return StepParts(*what, self.world, self.device, *how)

    @cached_property
    def _capture(self) -> CapturedSteps | None:
        return CapturedSteps(self._parts, self.reporter.say) if self.captures else None

    def fit(self, save_model: Callable[[str], None] | None = None) -> signal.Signals | None:
        """Train until the budget is used up; return the signal that stopped it earlier, or None.

        Args:
            save_model: called on every rank with the name of each milestone, after the step that
                reaches it and before the checkpoint of that step, so a resumed run misses none.
        """
        self._window.restart_clock()
        resumed_at, clock = self.state.seconds, time.perf_counter()
        saved_at = resumed_at
        with StopRequest() as stop, self.world.noticing_loss():
            self._score_beginning(stop)
            self._validate_if_due(stop)  # a resumed run may have been stopped during one
            while self.progress < 1:
                plan = self.schedule.step_at(self.progress, self.state.step)
                loaded = self._load(plan)
                own = count_predictions(loaded, self.terms)
                flags = stop.signal is not None, self._meets_new_shape(loaded)
                *counts, num_asked_to_stop, num_compiling = self.world.sum(*own.values(), *flags)
                if num_asked_to_stop:
                    break
                self._prefetch_after(loaded)
                num_predictions = dict(zip(own, counts, strict=True))
                self._train_on(loaded, plan, num_predictions)
                (seconds,) = self.world.from_first(resumed_at + time.perf_counter() - clock)
                before = self.state.tokens
                self._advance_state(loaded, seconds, is_startup=num_compiling > 0)
                for name, tokens in self.milestones.items():
                    if save_model is not None and before < tokens <= self.state.tokens:
                        save_model(name)
                self.reporter.advance(self._head_of_record("train"), self.progress)
                self._log_if_due(loaded, plan.learning_rate_scale)
                self._validate_if_due(stop)
                if seconds - saved_at >= 60 * self.config.checkpoint_every_minutes:
                    self._read_figures()
                    if not self.state.skipped_in_a_row:
                        self.save()
                        saved_at = seconds
            self._read_figures()
            self.save()
            self.world.wait()  # until the checkpoint is whole
        if self.progress >= 1 and self.state.validations == self.config.num_validations:
            return None
        return stop.signal or signal.SIGTERM  # SIGTERM: only another rank got a signal

    @property
    def progress(self) -> float:
        return self.state.progress(self.config)

    def _load(self, plan: StepPlan) -> LoadedStep:
        """Return the rows of a step; if they cannot be read, save a checkpoint before the error."""
        try:
            return self.prefetcher.take(plan.request, self.state.position)
        except (ShardError, OSError):
            if self.world.size == 1 and self.state.step:  # else the other ranks wait for this one
                self._read_figures()
                if not self.state.skipped_in_a_row:
                    self.save()
            raise

    def _prefetch_after(self, loaded: LoadedStep) -> None:
        ahead = replace(self.state, step=self.state.step + 1, position=loaded.next_position)
        ahead = replace(ahead, tokens=self.state.tokens + loaded.num_tokens)
        progress = ahead.progress(self.config)
        if progress < 1:
            plan = self.schedule.step_at(progress, ahead.step)
            self.prefetcher.start(plan.request, ahead.position)

    def _train_on(self, loaded: LoadedStep, plan: StepPlan, num_predictions: Counts) -> None:
        """Do one step; weights and optimizers do not change if loss or gradient is not finite.

        The device decides that, with the same result on all ranks. The figures are read after the
        next step is started, so that a GPU never waits for work.

        Args:
            num_predictions: number of predictions of each term, of all ranks together.
        """
        seed_dropout(self.seed, self.state.step, self.world.rank)
        if not self.model.training:
            self.model.train()
        self._parts.set_rates(plan.learning_rate_scale, self.state.step)
        figures = (self._capture or self._parts).run(loaded, num_predictions)
        self._read_figures()
        self._unread = _UnreadStep(self.state.step + 1, loaded, num_predictions, figures)

    def _read_figures(self) -> None:
        """Count the last step as good or skipped, unless that is done already."""
        unread, self._unread = self._unread, None
        if unread is None:
            return
        *values, norm = unread.figures.read()
        if all(map(math.isfinite, (*values, norm))):
            self._window.add(values, unread.num_predictions, norm)
            self.state = replace(self.state, skipped_in_a_row=0)
            return
        skipped, in_a_row = self.state.skipped_steps + 1, self.state.skipped_in_a_row + 1
        self.state = replace(self.state, skipped_steps=skipped, skipped_in_a_row=in_a_row)
        if in_a_row >= self.config.max_skipped_steps:
            raise TrainingError(self._describe_failure(unread))

    def _meets_new_shape(self, loaded: LoadedStep) -> bool:
        """Return True if this rank has not done a step of this shape: compiled, it has no graph."""
        request, counts_bounds = loaded.request, self.device.type == "cuda"
        same = (request.row_length, request.num_candidates, loaded.is_causal)
        shapes = {
            (len(b.input_ids), len(b.context.cu_seqlens) if counts_bounds else 0, *same)
            for b in loaded.micro_batches
        }
        is_new = not shapes <= self._shapes
        self._shapes |= shapes
        return is_new

    def _advance_state(self, loaded: LoadedStep, seconds: float, is_startup: bool) -> None:
        startup = seconds - self.state.seconds if is_startup else 0.0
        self._window.add_time(loaded.num_tokens)
        self.state = replace(
            self.state,
            step=self.state.step + 1,
            tokens=self.state.tokens + loaded.num_tokens,
            seconds=seconds,
            startup_seconds=self.state.startup_seconds + startup,
            repeated_startup_seconds=self.state.repeated_startup_seconds
            + startup * self._was_resumed,
            position=loaded.next_position,
        )
        if startup:
            self._window.restart_clock()

    def _describe_failure(self, failed: "_UnreadStep") -> str:
        request, position = failed.loaded.request, failed.loaded.position
        remedy = (
            "The last good checkpoint is kept: resume from it"
            if self._has_checkpoint
            else "There is no checkpoint yet: start again"
        )
        return (
            f"loss or gradient were not finite in {self.state.skipped_in_a_row} steps in a row; "
            f"the last was step {failed.step}, epoch {position.epoch}, {request.num_rows} rows "
            f"from row {position.row} on (maskwright inspect RUN --epoch {position.epoch} "
            f"--first-row {position.row} --rows {request.num_rows} "
            f"--row-length {request.row_length} --mask-rate {request.mask_rate} shows them). "
            f"{remedy} with a lower optim.learning_rate and optim.muon_learning_rate"
        )

    def _log_if_due(self, loaded: LoadedStep, learning_rate_scale: float) -> None:
        if self.state.step % self.config.log_every_steps and self.progress < 1:
            return
        self._read_figures()
        record = {
            **self._head_of_record("train"),
            **self._window.means(),
            "learning_rate": learning_rate_scale * self.optimizers.peak_learning_rate,
            "mask_rate": loaded.request.mask_rate,
            "row_length": loaded.request.row_length,
            "epoch": loaded.position.epoch,
            "first_row": loaded.position.row,
            "num_rows": loaded.request.num_rows,
            "skipped_steps": self.state.skipped_steps,
            "startup_seconds": self.state.startup_seconds,
        }
        self._window = LogWindow(self.terms)
        self.reporter.report(record, self.progress)

    def _validate_if_due(self, stop: StopRequest) -> None:
        due = self.state.validations_due(self.config)
        if due <= self.state.validations:
            return
        self._read_figures()
        began = time.perf_counter()
        try:
            scores = self.score(self.progress >= 1, lambda: self._hear(stop))
        except AbandonedError:
            return
        self.state = replace(self.state, validations=due)
        took = {"validation_seconds": time.perf_counter() - began}
        self.last_scores = {**self._head_of_record("valid"), **scores, **took}
        self.reporter.report(self.last_scores, self.progress)
        self._window.restart_clock()

    def _score_beginning(self, stop: StopRequest) -> None:
        if not self.should_score_beginning or self.state.step > 0:
            return
        self.reporter.say("scoring the model that the run begins with")
        try:
            scores = self.score(final=True, is_asked_to_stop=lambda: self._hear(stop))
        except AbandonedError:
            return
        self.reporter.report(
            {**self._head_of_record("valid"), **scores, "final": False}, self.progress
        )

    def _hear(self, stop: StopRequest) -> bool:
        """Return True if the run must stop; a validation calls this before each forward pass."""
        self.reporter.advance(self._head_of_record("valid"), self.progress)
        return stop.signal is not None

    def score(self, final: bool, is_asked_to_stop: Callable[[], bool] = lambda: False) -> Record:
        """Return what `validate` returns for the weights that would be saved."""
        self.model.eval()
        with self.averaged_weights():
            try:
                number = self.state.validations_due(self.config)
                return self.validate(number, final, is_asked_to_stop)
            finally:
                self.parallel.sharding.release(self.model)

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the weights to validate and save."""
        return self.average.applied(self.model) if self.average else nullcontext()

    def _head_of_record(self, split: str) -> Record:
        now = self.state
        return {"split": split, "step": now.step, "tokens": now.tokens, "seconds": now.seconds}

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        if self.checkpoints is not None:
            tensors = {**self._weights(), **_named("optimizer", self.optimizers.state_tensors())}
            state = {**self.state.to_json(), "window": self._window.to_json()}
            self.checkpoints.save(self.state.step, tensors, state)
            self._has_checkpoint = True

    def _weights(self) -> dict[str, Tensor]:
        averages = self.average.averages if self.average else {}
        return _named("model", dict(self.model.named_parameters())) | _named("average", averages)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint of this run; raise CheckpointError if it is of another run."""
        counts = {name: value for name, value in checkpoint.state.items() if name != "window"}
        state = TrainState.from_json(counts)
        if "window" in checkpoint.state:  # older checkpoints have none
            self._window.restore(checkpoint.state["window"])
        self._has_checkpoint = self._was_resumed = True
        shapes = {
            name.removeprefix("optimizer/"): shape
            for name, shape in checkpoint.shapes.items()
            if name.startswith("optimizer/")
        }
        tensors = self._weights()
        begins_to_average = not any(name.startswith("average/") for name in checkpoint.shapes)
        if begins_to_average:
            tensors = {n: tensor for n, tensor in tensors.items() if not n.startswith("average/")}
        tensors |= _named("optimizer", self.optimizers.allocate_state(shapes))
        checkpoint.read_into(tensors, self.parallel.sharding)
        if self.average and begins_to_average:
            self.average.restart(self.model)
        # The budget may be larger than when the validations were done; then fewer are due.
        due = state.validations_due(self.config)
        self.state = replace(state, validations=min(state.validations, due))


def _named(group: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{group}/{name}": tensor for name, tensor in tensors.items()}
