"""Training: the best weights, one run for each seed, finished seeds, and teachers.

A teacher reads each training example once, since inputs do not change between epochs. N examples,
K labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.console import Pulse
from maskwright.errors import CheckpointError, InputError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import Examples
from maskwright.finetuning.loop import (
    BestWeights,
    EarlyStopping,
    Loop,
    StoppedSeed,
    check_finite,
)
from maskwright.finetuning.metrics import (
    VALID_LOSS,
    Results,
    Scores,
    SetResults,
    beats,
    rank,
    summarize,
)
from maskwright.finetuning.network import (
    build_classifier,
    compute_logits,
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
from maskwright.runs.evaluation_file import to_plain
from maskwright.runs.run_directory import STOPPED_NAME
from maskwright.train.checkpoint import Checkpoint, find_newest, save_checkpoint
from maskwright.train.device import autocast, choose_device

_ASSIGNED = np.linspace(0.25, 4, 31)  # labels assigned by a threshold, relative to the true ones


def score_logits(
    data: TaskData, examples: Examples, logits: Sequence[Logits], threshold: float = 0.0
) -> Scores:
    """Return the metrics of logits, and their loss without class weights.

    A label is assigned if its logit is above `threshold`, which the loss does not depend on.
    """
    targets = examples.select_targets(range(len(examples)))
    found = torch.as_tensor(np.vstack(logits)).double()  # squares of large numbers may overflow
    loss = data.task.loss(found, targets)
    moved = [each - np.float32(threshold) for each in logits] if threshold else logits
    predictions = data.task.collect(examples, moved)
    scores = data.task.score(data.labels, data.metrics, examples, predictions)
    return {**scores, VALID_LOSS: loss.item()}


def choose_threshold(data: TaskData, examples: Examples, logits: Sequence[Logits]) -> float:
    """Return the logit above which a label is best assigned; 0 unless a text has several labels.

    All labels share it: with calibrated probabilities one threshold, half of the best micro F1,
    is optimal (Lipton et al., "Optimal Thresholding of Classifiers to Maximize F1", 2014), and a
    few validation examples cannot choose one for each label.
    """
    if data.task.problem != "multi_label_classification":
        return 0.0
    found, metric = np.stack(logits), data.deciding
    share = np.asarray(examples.targets).mean()
    levels = np.unique(np.clip(1 - share * _ASSIGNED, 0, 1))
    best, best_score = 0.0, score_logits(data, examples, logits)[metric]
    for threshold in np.quantile(found, levels).tolist():
        score = score_logits(data, examples, logits, threshold)[metric]
        if beats(metric, score, best_score):
            best, best_score = threshold, score
    return best


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
        threshold: the logit above which a label was assigned; the bias of the saved output layer
            is lower by it, so that the limit is a probability of one half.
    """

    seed: int
    scores: Scores = field(default_factory=dict[str, float])
    test_scores: Scores = field(default_factory=dict[str, float])
    best_step: int = 0
    num_steps: int = 0
    max_steps: int = 0
    threshold: float = 0.0
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
        stopped: StoppedSeed | None = None,
    ) -> None:
        self.model, self.data, self.log = model, data, log
        self.stopped = stopped or StoppedSeed()
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
        self._best = BestWeights(model)
        majority = data.baselines["majority"]
        self._stopping = EarlyStopping(self.config, self.loop.num_steps, data.deciding, majority)

    def run(self) -> RunResult:
        """Train until the budget is spent or `EarlyStopping` ends the run; raise as `Loop.run`."""
        data, loop, stopping = self.data, self.loop, self._stopping
        self.result.max_steps = loop.num_steps
        state = self.stopped.read(loop, self.model, stopping, self._best)
        if state is not None:
            self.result = RunResult.read(state["result"])
            for record in self.result.history:
                self.log(record)
        with self.stopped.keeping(loop, stopping, self._best, self._describe):
            for point in loop.run(self._compute_loss) if not stopping.has_ended else ():
                with rescaled_output(self.model, self.mean, self.deviation):
                    self._evaluate(point)
                if stopping.has_ended:
                    break
            with loop.undivided():
                self._best.restore()
            if data.test is not None:
                logits, threshold = self._compute_logits(data.test), self.result.threshold
                raw = [each + np.float32(threshold) for each in logits] if threshold else logits
                self.result.test_scores = self._score(data.test, raw, threshold)
        return self.result

    def _evaluate(self, point: Record) -> None:
        logits = self._compute_logits(self.data.valid)
        threshold = choose_threshold(self.data, self.data.valid, logits)
        scores = self._score(self.data.valid, logits, threshold)
        with rescaled_output(self.model, -threshold, 1.0), self.loop.undivided():
            self._keep(point, scores, threshold)

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

    def _keep(self, point: Record, scores: Scores, threshold: float) -> None:
        """Record an evaluation, and keep the weights if they are the best so far."""
        result, deciding = self.result, self.data.deciding
        if not result.scores or rank(deciding, scores) > rank(deciding, result.scores):
            result.scores, result.best_step = scores, point["step"]
            result.threshold = threshold
            self._best.copy()
        result.num_steps, result.seconds = point["step"], point["seconds"]
        result.history.append({"seed": result.seed, **point, **scores})
        self._stopping.note(point["step"], scores)
        self.loop.point = None
        self.log(result.history[-1])

    def _describe(self) -> Record:
        return {"result": self.result.to_plain()}

    def _compute_logits(self, examples: Examples) -> list[Logits]:
        # As `Predictor` computes: in bf16 nearly equal answers change places.
        parts = self.data.pad_id, "fp32", self.loop.pulse
        return compute_logits(self.model, examples, *parts)

    def _score(self, examples: Examples, logits: Sequence[Logits], threshold: float) -> Scores:
        """Return the scores of logits; raise TrainingError unless their loss is finite."""
        scores = score_logits(self.data, examples, logits, threshold)
        name = "loss on held-out examples"
        check_finite(scores[VALID_LOSS], name, self.config.learning_rate)
        return scores


@dataclass
class FinishedSeeds:
    """The finished runs, in order, in a checkpoint with the weights of the best one.

    Each run replaces the checkpoint of the previous one. A seed whose process is killed is trained
    again from its beginning, with the same result: data order, head and dropout depend on the seed
    alone. `folder` is None if no checkpoint is written.
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

    @property
    def stopped(self) -> StoppedSeed:
        """The seed after them, if a signal stopped it."""
        return StoppedSeed(self.folder and self.folder / STOPPED_NAME)

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
        run = Fitting(model, data, config, seed, log, pulse, finished.stopped).run()
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
        test: SetResults = {
            "examples": len(data.test.rows),
            "baselines": to_plain(data.test_baselines),
            "scores": summarize([run.test_scores for run in seeds.runs]),
        }
        if void := data.task.list_void(data.labels, data.metrics, data.test):
            test["void"] = void
        results["test"] = test
    return results


def add_beside(results: Results, data: TaskData, answers: Sequence[Sequence[Logits]]) -> None:
    """Replace the scores by those of the saved model with its linear model beside.

    The mean scores of the encoders alone stand among the baselines.

    Args:
        answers: the logits of the validation examples, and of the test examples if there are any.
    """
    sets: list[SetResults] = [results, *([results["test"]] if "test" in results else [])]
    for found, examples, logits in zip(sets, data.held_out, answers, strict=True):
        alone = {name: score["mean"] for name, score in found["scores"].items()}
        found["baselines"] = {**found["baselines"], "encoder alone": alone}
        found["scores"] = summarize([score_logits(data, examples, logits)])


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
