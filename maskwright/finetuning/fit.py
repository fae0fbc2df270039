"""Training: the loop, early stopping, the best weights, one run for each seed, and teachers.

A teacher reads each training example once, since inputs do not change between epochs. N examples,
K labels.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.console import Pulse
from maskwright.errors import CheckpointError, InputError, TrainingError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import Examples, plan_steps
from maskwright.finetuning.metrics import (
    VALID_LOSS,
    Results,
    Scores,
    beats,
    is_perfect,
    rank,
    summarize,
)
from maskwright.finetuning.network import (
    build_classifier,
    compute_logits,
    group_parameters,
    rescaled_output,
)
from maskwright.finetuning.task import Logits, TaskData
from maskwright.logs import Record
from maskwright.model.classifier import Classifier
from maskwright.model.config import ProblemType
from maskwright.model.init import initialize
from maskwright.model.masked_lm import EncoderModel
from maskwright.model_folder.classifier_folder import open_classifier
from maskwright.objectives.distillation import diverge
from maskwright.optim.eager import AdamW
from maskwright.runs.evaluation_file import to_plain
from maskwright.train.checkpoint import Checkpoint, find_newest, save_checkpoint
from maskwright.train.device import autocast, choose_device

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

    def run(
        self, module: nn.Module, compute_loss: Callable[[list[int]], Tensor]
    ) -> Iterator[Record]:
        """Train `module`, and yield when it is to be scored: step, epoch, loss and seconds.

        The loss is the mean since the last evaluation; `compute_loss` returns that of the examples
        at some indices. Raise TrainingError if a loss is not finite.
        """
        torch.manual_seed(self.seed)
        config, began, losses = self.config, time.perf_counter(), list[float]()
        fused = self.device.type in ("cpu", "cuda")
        optimizer = AdamW(group_parameters(module, config), fused=fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: scale_rate(step, self.num_steps, config.warmup_share)
        )
        apart = min(self.num_steps, self.steps_an_epoch / config.evaluations_an_epoch)
        every = max(1, round(apart))
        steps = plan_steps(self.lengths, config.batch_size, self.num_steps, self.seed)
        for step, numbers in enumerate(steps, start=1):
            module.train()
            loss = compute_loss(numbers)
            loss.backward()
            if config.grad_clip:
                nn.utils.clip_grad_norm_(module.parameters(), config.grad_clip)
            losses.append(loss.item())
            _check_finite(losses[-1], f"loss of step {step}", config.learning_rate)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            self.pulse.beat(
                f"  seed {self.seed}  step {step:,} of {self.num_steps:,}  loss {losses[-1]:.4f}"
            )
            if step % every == 0 or step == self.num_steps:
                point: Record = {"step": step, "epoch": step / self.steps_an_epoch}
                mean, seconds = sum(losses) / len(losses), time.perf_counter() - began
                yield {**point, "loss": mean, "seconds": seconds}
                losses = []


class EarlyStopping:
    """The rule that ends a run after `config.patience` evaluations without improvement; 0: never.

    A better score and a lower loss than ever before are improvements. Evaluations do not count in
    the first part of the run, nor without a better score than the `majority`: a small encoder may
    predict the most frequent label for a while. After a perfect score no improvement counts, as the
    loss would fall until the end of the budget.
    """

    def __init__(
        self, config: FinetuneConfig, num_steps: int, metric: str, majority: Scores | None = None
    ) -> None:
        self.patience, self.metric, self.majority = config.patience, metric, majority
        self.warmup = config.warmup_share * num_steps
        self.least = max(self.warmup, _MIN_SHARE * num_steps)
        self._best: Scores = {VALID_LOSS: math.inf}
        self._waited = 0

    def is_over(self, step: int, scores: Mapping[str, float]) -> bool:
        """Return True if the run ends after this evaluation."""
        metric, best, loss = self.metric, self._best, scores[VALID_LOSS]
        was_perfect = metric in best and is_perfect(metric, best)
        is_better = metric not in best or beats(metric, scores[metric], best[metric])
        is_ahead = not self.majority or beats(metric, scores[metric], self.majority[metric])
        is_learning = step < self.least or is_better or loss < best[VALID_LOSS] or not is_ahead
        if is_better:
            best[metric] = scores[metric]
        best[VALID_LOSS] = min(best[VALID_LOSS], loss)
        is_early = step < self.warmup if was_perfect else is_learning
        self._waited = 0 if is_early else self._waited + 1
        return 0 < self.patience <= self._waited


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's weights."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _check_finite(loss: float, name: str, rate: float | None) -> None:
    if not math.isfinite(loss):
        raise TrainingError(f"the {name} is not finite. Try a lower learning_rate than {rate}.")


def score_model(
    model: Classifier, data: TaskData, examples: Examples, config: FinetuneConfig, pulse: Pulse
) -> Scores:
    """Return a model's metrics, and its loss without class weights; raise unless it is finite."""
    logits = compute_logits(model, examples, data.pad_id, config.precision, pulse)
    targets = examples.select_targets(range(len(examples)))
    found = torch.as_tensor(np.vstack(logits)).double()  # squares of large numbers may overflow
    loss = data.task.loss(found, targets)
    _check_finite(loss.item(), "loss on held-out examples", config.learning_rate)
    predictions = data.task.collect(examples, logits)
    scores = data.task.score(data.labels, data.metrics, examples, predictions)
    return {**scores, VALID_LOSS: loss.item()}


def weigh_labels(
    problem: ProblemType, counts: Sequence[int], num_examples: int
) -> NDArray[np.float32]:
    """Return [K] class weights that give all labels the same total weight in the loss.

    Of several labels at once, they weigh the positive examples relative to the negative ones.
    """
    each = np.array(counts, np.float64)
    if problem == "multi_label_classification":
        # At least 1 in the numerator: a label of all examples keeps a positive weight.
        return (np.maximum(num_examples - each, 1) / each).astype(np.float32)
    return (each.sum() / (len(each) * each)).astype(np.float32)


def distill(problem: ProblemType, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the mean loss of logits [N, K] beside a teacher's, on the scale of `LabelTask.loss`.

    Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.
    """
    if problem == "regression":
        return F.mse_loss(logits, teacher)
    logits, teacher = logits / temperature, teacher / temperature
    if problem == "multi_label_classification":
        found = F.binary_cross_entropy_with_logits(logits, teacher.sigmoid())
    else:
        found = diverge(logits, teacher).mean()
    return temperature**2 * found


@dataclass
class RunResult:
    """One run: its best scores on the validation examples, and its records.

    Attributes:
        test_scores: the scores of the same weights on the test examples, if there are any.
        max_steps: the steps of its budget; less were trained if `EarlyStopping` ended the run.
    """

    seed: int
    scores: Scores = field(default_factory=dict[str, float])
    test_scores: Scores = field(default_factory=dict[str, float])
    best_step: int = 0
    num_steps: int = 0
    max_steps: int = 0
    seconds: float = 0.0
    history: list[Record] = field(default_factory=list[Record])

    def to_plain(self) -> Record:
        """Return the run as JSON values; undefined scores are null."""
        return to_plain(asdict(self))

    @classmethod
    def read(cls, values: Record) -> "RunResult":
        """Return the run of JSON values; raise TypeError if they are not its fields."""
        run = cls(**values)
        for scores in (run.scores, run.test_scores):
            scores |= {name: math.nan for name, value in scores.items() if value is None}
        return run


class Fitting:
    """One run of fine-tuning; afterwards the model has the weights that scored best.

    If the task normalizes targets, the model is trained on ``(y - mean) / deviation``.
    """

    def __init__(
        self,
        model: Classifier,
        data: TaskData,
        config: FinetuneConfig,
        seed: int,
        log: Callable[[Record], None] = lambda record: None,
        pulse: Pulse | None = None,
    ) -> None:
        self.model, self.data, self.log = model, data, log
        self.config = config.resolve(len(data.train), model.config.hidden_size)
        self.device = next(model.parameters()).device
        self.result = RunResult(seed)
        self.mean, self.deviation = 0.0, 1.0
        if data.task.scales_targets:
            targets = np.asarray(data.train.targets)
            self.mean = float(np.mean(targets, dtype="f8"))
            self.deviation = float(np.std(targets, dtype="f8")) or 1.0
        self.weights: Tensor | None = None
        if config.class_weights:
            weights = weigh_labels(data.task.problem, data.labels.counts, len(data.train))
            self.weights = torch.as_tensor(weights).to(self.device)
        self.loop = Loop(self.config, data.train.lengths, seed, self.device, pulse)
        self._best: dict[str, Tensor] = {}

    def run(self) -> RunResult:
        """Train until the budget is spent or `EarlyStopping` ends the run; raise as `Loop.run`."""
        data, self.result.max_steps = self.data, self.loop.num_steps
        majority = data.baselines["majority"]
        stopping = EarlyStopping(self.config, self.loop.num_steps, data.deciding, majority)
        for point in self.loop.run(self.model, self._compute_loss):
            self.result.num_steps = point["step"]
            scores = self._evaluate(point)
            self.result.seconds = point["seconds"]
            if stopping.is_over(point["step"], scores):
                break
        self.model.load_state_dict(self._best)
        if self.data.test is not None:
            self.result.test_scores = self._score(self.data.test)
        return self.result

    def _compute_loss(self, numbers: list[int]) -> Tensor:
        examples = self.data.train
        batch = examples.collate(numbers, self.data.pad_id, self.device)
        targets = self._normalize(examples.select_targets(numbers))
        with autocast(self.config.precision, self.device):
            logits = self.model(
                batch.input_ids, batch.context, batch.token_type_ids, batch.output_positions
            )
        logits, task, config = logits.float(), self.data.task, self.config.distill
        loss = task.loss(logits, targets, self.weights)
        if self.data.soft_targets is None:
            return loss
        found = np.vstack([self.data.soft_targets[number] for number in numbers])
        soft = self._normalize(torch.as_tensor(found))
        taught = distill(task.problem, logits, soft, config.temperature)
        return (1 - config.weight) * loss + config.weight * taught

    def _normalize(self, targets: Tensor) -> Tensor:
        """Return targets or a teacher's answers on the device, on the scale of the logits."""
        targets = targets.to(self.device)
        if self.deviation != 1.0 or self.mean:
            return (targets - self.mean) / self.deviation
        return targets

    def _evaluate(self, point: Record) -> Scores:
        """Return the scores of the model, and keep its weights if they are the best so far."""
        result = self.result
        with rescaled_output(self.model, self.mean, self.deviation):
            scores = self._score(self.data.valid)
            deciding = self.data.deciding
            if not result.scores or rank(deciding, scores) > rank(deciding, result.scores):
                result.scores, result.best_step = scores, point["step"]
                self._best = copy_weights(self.model)
        result.history.append({"seed": result.seed, **point, **scores})
        self.log(result.history[-1])
        return scores

    def _score(self, examples: Examples) -> Scores:
        return score_model(self.model, self.data, examples, self.config, self.loop.pulse)


@dataclass
class FinishedSeeds:
    """The finished runs, in order, in a checkpoint with the weights of the best one.

    Each run replaces the checkpoint of the previous one. An interrupted seed is trained again from
    its beginning, with the same result: data order, head and dropout depend on the seed alone.
    `folder` is None if no checkpoint is written.
    """

    folder: Path | None = None
    runs: list[RunResult] = field(default_factory=list[RunResult])
    checkpoint: Checkpoint | None = None

    @classmethod
    def read(cls, folder: Path, report: Callable[[str], None]) -> "FinishedSeeds":
        """Return the finished seeds of a folder; a damaged checkpoint holds none, and is reported.

        Raise CheckpointError if the checkpoint is not one of finished seeds.
        """
        checkpoint, complaints = find_newest(folder)
        for complaint in complaints:
            report(f"warning: {complaint}; its seeds are trained again")
        if checkpoint is None:
            return cls(folder)
        try:
            runs = [RunResult.read(run) for run in checkpoint.state["runs"]]
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.path} holds no finished seeds ({error}). Remove it."
            ) from None
        return cls(folder, runs, checkpoint)

    def add(self, run: RunResult, best: Classifier) -> None:
        """Add a run; `best` is the classifier of the best run so far."""
        self.runs.append(run)
        if self.folder is not None:
            state = {"runs": [each.to_plain() for each in self.runs]}
            save_checkpoint(self.folder, len(self.runs), best.state_dict(), state, keep=1)


class SeedsResult(NamedTuple):
    """The classifier of the best run, all runs, and the seed of the best one."""

    model: Classifier
    runs: list[RunResult]
    saved_seed: int


def find_best(runs: Sequence[RunResult], deciding: str) -> int:
    """Return the index of the best run, or of the first among equals."""
    return max(range(len(runs)), key=lambda number: rank(deciding, runs[number].scores))


def train_seeds(
    data: TaskData,
    pretrained: EncoderModel,
    config: FinetuneConfig,
    device: torch.device,
    log: Callable[[Record], None] = lambda record: None,
    *,
    from_scratch: bool = False,
    pulse: Pulse | None = None,
    finished: FinishedSeeds | None = None,
) -> SeedsResult:
    """Train one classifier for each seed that is not finished; raise as `Loop.run`.

    Args:
        log: receives the record of each evaluation.
        from_scratch: initialize the encoder with random weights, as a control.
        finished: the seeds of an earlier process; each finished run is added.
    """
    finished, config = finished or FinishedSeeds(), replace(config, pooling=data.pooling)

    def build(seed: int) -> Classifier:
        level, num_labels = data.task.level, len(data.labels.names)
        model = build_classifier(pretrained, config, level, num_labels, seed)
        if from_scratch:
            initialize(model, seed)
        return model.to(device)

    best: Classifier | None = None
    if finished.runs:
        best = build(config.first_seed)
        assert finished.checkpoint is not None
        finished.checkpoint.read_into(best.state_dict())
    for seed in range(config.first_seed + len(finished.runs), config.first_seed + config.seeds):
        model = build(seed)
        run = Fitting(model, data, config, seed, log, pulse).run()
        runs = [*finished.runs, run]
        if best is None or find_best(runs, data.deciding) == len(finished.runs):
            best = model
        finished.add(run, best)
    assert best is not None
    saved = finished.runs[find_best(finished.runs, data.deciding)]
    return SeedsResult(best.cpu(), finished.runs, saved.seed)


def collect_results(data: TaskData, seeds: SeedsResult, computation: dict[str, str]) -> Results:
    """Return the results of all seeds, without scores by class and without the control."""
    results: Results = {
        "task": data.task.name,
        "computation": computation,
        "deciding_metric": data.deciding,
        "labels": dict(zip(data.labels.names, data.labels.counts, strict=True)),
        "train_examples": len(data.train.rows),
        "valid_examples": len(data.valid.rows),
        "skipped_rows": dict(data.skipped),
        "baselines": to_plain(data.baselines),
        "scores": summarize([run.scores for run in seeds.runs]),
        "runs": [run.to_plain() for run in seeds.runs],
    }
    if void := data.task.list_void(data.labels, data.metrics, data.valid):
        results["void"] = void
    if data.test is not None:
        void = data.task.list_void(data.labels, data.metrics, data.test)
        results["test"] = {
            "examples": len(data.test.rows),
            "baselines": to_plain(data.test_baselines),
            "scores": summarize([run.test_scores for run in seeds.runs]),
            **({"void": void} if void else {}),
        }
    return results


def add_control(results: Results, control: SeedsResult) -> None:
    """Add the scores of an encoder of the same shape that started from random weights."""
    results["random_encoder"] = summarize([run.scores for run in control.runs])
    results["random_encoder_runs"] = [run.to_plain() for run in control.runs]
    if "test" in results:
        results["test"]["random_encoder"] = summarize([run.test_scores for run in control.runs])


def ask_teacher(folder: Path, data: TaskData, config: FinetuneConfig, pulse: Pulse) -> list[Logits]:
    """Return the teacher's logits for each training example: [K] for a text, [words, K] for words.

    A teacher of texts may have another tokenizer. One of words must cut sentences as the student
    does. Raise InputError if it was trained for another task, or with other labels.
    """
    teacher, task, labels = open_classifier(folder), data.task, data.labels
    level, problem = teacher.model.head_config.level, teacher.problem
    other = {*teacher.labels} ^ {*labels.names} if task.problem != "regression" else set[str]()
    if level != task.level or (level == "text" and problem != task.problem) or other:
        shown = f", with other labels, such as {min(other)}" if other else ""
        raise InputError(
            f"--teacher {folder} labels {level}s ({problem}){shown}, which is not --task "
            f"{task.name} on these examples. Give a model that was fine-tuned for them."
        )
    examples = task.encode(data.train.rows, labels, teacher.tokenizer, teacher.max_length)
    theirs, ours = ([len(each) for each in one.positions or ()] for one in (examples, data.train))
    if theirs != ours:
        raise InputError(
            f"--teacher {folder} cuts sentences at other words. Set max_length = "
            f"{teacher.max_length}, and use a model with the same tokenizer."
        )
    model = teacher.model.to(choose_device(config.device, field="device"))
    logits = compute_logits(model, examples, teacher.tokenizer.pad_id, config.precision, pulse)
    if task.problem == "regression":
        return logits
    order = [teacher.labels.index(name) for name in labels.names]
    return [each[..., order] for each in logits]
