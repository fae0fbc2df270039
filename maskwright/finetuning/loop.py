"""The training loop of a seed, early stopping, and the state of a seed that a signal stopped.

SIGINT and SIGTERM wait for the end of a step. Then weights, optimizer, random generator and scores
are saved, so that the same command resumes the seed at its step and ends with the same bits. A
process that is killed saves nothing.
"""

import itertools
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from maskwright.console import Pulse
from maskwright.errors import CheckpointError, TrainingError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import plan_steps
from maskwright.finetuning.metrics import VALID_LOSS, Scores, beats, is_perfect
from maskwright.finetuning.network import build_optimizers
from maskwright.logs import Record
from maskwright.train.checkpoint import Checkpoint, find_newest, save_checkpoint
from maskwright.train.signals import TerminatedError, deferring_stop

_MIN_SHARE = 0.5  # of the steps of a run, before early stopping counts


def scale_rate(step: int, num_steps: int, warmup_share: float) -> float:
    """Return the learning rate factor of a step: a linear warm-up to 1, a linear decay to 0."""
    warmup = warmup_share * num_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (num_steps - step) / max(1.0, num_steps - warmup))


class Loop:
    """The training loop: learning rate schedule, gradient clipping, evaluation points.

    The config is resolved; `lengths` are the tokens of each training example.

    Attributes:
        step: the steps that are done.
        point: the record of the evaluation that is due; its owner removes it when it is scored.
        is_divided: True in the middle of a step, when the state is that of no step.
    """

    def __init__(
        self,
        config: FinetuneConfig,
        lengths: Sequence[int],
        seed: int,
        device: torch.device,
        pulse: Pulse | None = None,
    ) -> None:
        assert config.epochs is not None, "the config is not resolved"
        self.config, self.lengths, self.seed, self.device = config, lengths, seed, device
        self.pulse = pulse or Pulse()
        self.steps_an_epoch = math.ceil(len(lengths) / config.batch_size)
        self.num_steps = max(1, math.ceil(config.epochs * self.steps_an_epoch))
        self.step, self.is_divided = 0, False
        self.point: Record | None = None
        self._losses: list[float] = []  # since the last evaluation
        self._began = 0.0

    def start(self, module: nn.Module, checkpoint: Checkpoint | None = None) -> None:
        """Prepare the training of `module`, from the state in a checkpoint if there is one."""
        torch.manual_seed(self.seed)
        self._module = module
        self._optimizers = build_optimizers(module, self.config, self.device)
        self._began = time.perf_counter()
        if checkpoint is not None:
            with self.undivided():
                self._read(checkpoint)

    def run(self, compute_loss: Callable[[list[int]], Tensor]) -> Iterator[Record]:
        """Train the module, and yield when it is to be scored: step, epoch, loss and seconds.

        The loss is the mean since the last evaluation; `compute_loss` returns that of the examples
        at some indices. Raise TrainingError if a loss is not finite.
        """
        apart = min(self.num_steps, self.steps_an_epoch / self.config.evaluations_an_epoch)
        every = max(1, round(apart))
        if self.point is not None:  # it was being scored when the seed was stopped
            yield self.point
        steps = plan_steps(self.lengths, self.config.batch_size, self.num_steps, self.seed)
        for numbers in itertools.islice(steps, self.step, None):
            with self.undivided():
                self._train(compute_loss, numbers)
                if self.step % every == 0 or self.step == self.num_steps:
                    self.point = self._describe_point()
                    self._losses = []
            if self.point is not None:
                yield self.point

    def _train(self, compute_loss: Callable[[list[int]], Tensor], numbers: list[int]) -> None:
        self._module.train()
        loss = compute_loss(numbers)
        loss.backward()
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(self._module.parameters(), self.config.grad_clip)
        self._losses.append(loss.item())
        step = self.step + 1
        check_finite(self._losses[-1], f"loss of step {step}", self.config.learning_rate)
        scale = scale_rate(self.step, self.num_steps, self.config.warmup_share)
        self._optimizers.scale_learning_rates(scale)
        self._optimizers.step()
        self._optimizers.zero_grad()
        self.step = step
        self.pulse.beat(
            f"  seed {self.seed}  step {step:,} of {self.num_steps:,}  loss {loss.item():.4f}"
        )

    def _describe_point(self) -> Record:
        point: Record = {"step": self.step, "epoch": self.step / self.steps_an_epoch}
        mean, seconds = sum(self._losses) / len(self._losses), time.perf_counter() - self._began
        return {**point, "loss": mean, "seconds": seconds}

    @contextmanager
    def undivided(self) -> Generator[None]:
        """Let signals wait for the end of the context. A second Ctrl-C does not wait."""
        self.is_divided = True
        with deferring_stop():
            yield
            self.is_divided = False

    def describe(self) -> tuple[dict[str, Tensor], Record]:
        """Return the state of the training: tensors by name, and plain values."""
        tensors = {**self._list_weights(), **_prefix("optimizer", self._optimizers.state_tensors())}
        tensors["generator/cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["generator/cuda"] = torch.cuda.get_rng_state(self.device)
        state = {"step": self.step, "point": self.point, "losses": self._losses}
        return tensors, {**state, "seconds": time.perf_counter() - self._began}

    def _read(self, checkpoint: Checkpoint) -> None:
        """Fill weights, optimizer and generators; raise as `Checkpoint.read_into`."""
        state, begin = checkpoint.state["loop"], "optimizer/"
        shapes = checkpoint.shapes.items()
        slots = {name.removeprefix(begin): s for name, s in shapes if name.startswith(begin)}
        tensors = {**self._list_weights()}
        tensors |= _prefix("optimizer", self._optimizers.allocate_state(slots))
        generators = {"generator/cpu": torch.get_rng_state()}
        if self.device.type == "cuda" and "generator/cuda" in checkpoint.shapes:
            generators["generator/cuda"] = torch.cuda.get_rng_state(self.device)
        checkpoint.read_into({**tensors, **generators})
        torch.set_rng_state(generators["generator/cpu"])
        if "generator/cuda" in generators:
            torch.cuda.set_rng_state(generators["generator/cuda"], self.device)
        self.step, self.point, self._losses = state["step"], state["point"], state["losses"]
        self._began = time.perf_counter() - state["seconds"]

    def _list_weights(self) -> dict[str, Tensor]:
        return _prefix("module", self._module.state_dict())


def _prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


class EarlyStopping:
    """The rule that ends a run after `config.patience` evaluations without improvement; 0: never.

    A better score and a lower loss than ever before are improvements. Evaluations do not count in
    the first part of the run, nor without a better score than the `majority`: a small encoder may
    predict the most frequent label for a while. After a perfect score no improvement counts, as the
    loss would fall until the end of the budget.

    Attributes:
        best: the best value of the metric, and the lowest loss, independently.
        num_waited: the evaluations since the last improvement.
    """

    def __init__(
        self, config: FinetuneConfig, num_steps: int, metric: str, majority: Scores | None = None
    ) -> None:
        self.patience, self.metric, self.majority = config.patience, metric, majority
        self.warmup = config.warmup_share * num_steps
        self.least = max(self.warmup, _MIN_SHARE * num_steps)
        self.best: Scores = {VALID_LOSS: math.inf}
        self.num_waited = 0

    @property
    def has_ended(self) -> bool:
        """True if the run ends after the evaluations so far."""
        return 0 < self.patience <= self.num_waited

    def note(self, step: int, scores: Mapping[str, float]) -> None:
        """Take account of an evaluation."""
        metric, best, loss = self.metric, self.best, scores[VALID_LOSS]
        was_perfect = metric in best and is_perfect(metric, best)
        is_better = metric not in best or beats(metric, scores[metric], best[metric])
        is_ahead = not self.majority or beats(metric, scores[metric], self.majority[metric])
        is_learning = step < self.least or is_better or loss < best[VALID_LOSS] or not is_ahead
        if is_better:
            best[metric] = scores[metric]
        best[VALID_LOSS] = min(best[VALID_LOSS], loss)
        is_early = step < self.warmup if was_perfect else is_learning
        self.num_waited = 0 if is_early else self.num_waited + 1


@dataclass
class BestWeights:
    """The weights of a model at its best evaluation so far."""

    model: nn.Module
    tensors: dict[str, Tensor] | None = None

    def copy(self) -> None:
        """Keep a copy of the weights of the model."""
        weights = self.model.state_dict().items()
        self.tensors = {name: tensor.detach().clone() for name, tensor in weights}

    def restore(self) -> None:
        """Give the model the weights that were kept."""
        assert self.tensors is not None, "no evaluation"
        self.model.load_state_dict(self.tensors)


@dataclass(frozen=True)
class StoppedSeed:
    """The state of a seed that SIGINT or SIGTERM stopped, in a folder; None: none is kept."""

    folder: Path | None = None

    @contextmanager
    def keeping(
        self, loop: Loop, stopping: EarlyStopping, best: BestWeights, describe: Callable[[], Record]
    ) -> Generator[None]:
        """Save the state if a signal stops the context between two steps.

        Args:
            describe: returns what else `read` needs, as plain values.
        """
        try:
            yield
        except (KeyboardInterrupt, TerminatedError):
            if self.folder is not None and loop.step and not loop.is_divided:
                tensors, counts = loop.describe()
                tensors |= _prefix("best", best.tensors or {})
                waited = {"best": stopping.best, "num_waited": stopping.num_waited}
                state = {"seed": loop.seed, "loop": counts, "stopping": waited, **describe()}
                with deferring_stop():
                    self.folder.parent.mkdir(exist_ok=True)
                    save_checkpoint(self.folder, loop.step, tensors, state, keep=1)
            raise

    def read(
        self, loop: Loop, module: nn.Module, stopping: EarlyStopping, best: BestWeights
    ) -> Record | None:
        """Start the loop, where the seed was stopped if it was; return what `describe` returned.

        A damaged state is reported, and the seed is trained again. Raise CheckpointError if the
        folder holds something else.
        """
        checkpoint = self._find(loop)
        try:
            loop.start(module, checkpoint)
            if checkpoint is None:
                return None
            stopping.best = checkpoint.state["stopping"]["best"]
            stopping.num_waited = checkpoint.state["stopping"]["num_waited"]
            if any(name.startswith("best/") for name in checkpoint.shapes):
                best.copy()
                checkpoint.read_into(_prefix("best", best.tensors or {}))
        except (KeyError, TypeError) as error:
            where = checkpoint.path if checkpoint else self.folder
            raise CheckpointError(f"{where} holds no stopped seed ({error}). Remove it.") from None
        loop.pulse.say(f"  seed {loop.seed} goes on at step {loop.step:,} of {loop.num_steps:,}")
        return checkpoint.state

    def _find(self, loop: Loop) -> Checkpoint | None:
        if self.folder is None:
            return None
        checkpoint, complaints = find_newest(self.folder)
        for complaint in complaints:
            loop.pulse.say(f"warning: {complaint}; the seed is trained again")
        is_same = checkpoint is not None and checkpoint.state.get("seed") == loop.seed
        return checkpoint if is_same else None  # a seed that was finished later


def check_finite(loss: float, name: str, rate: float | None) -> None:
    """Raise TrainingError unless a loss is finite."""
    if not math.isfinite(loss):
        raise TrainingError(f"the {name} is not finite. Try a lower learning_rate than {rate}.")
