"""The fit of the linear model beside an encoder, whose parts are chosen by folds.

An encoder knows the labels of its own training examples, so its logits for them say nothing about
its worth. In folds each example is answered by an encoder that was fine-tuned on the others, and
those answers weigh the encoder against the words and the vectors. N examples, K labels.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.console import Pulse
from maskwright.errors import CorpusError, InputError
from maskwright.extras import import_extra
from maskwright.finetuning.baselines import build_linear, count_words, fit_vectorizer
from maskwright.finetuning.beside import (
    Beside,
    Weights,
    Words,
    compute_vectors,
    open_embedder,
)
from maskwright.finetuning.config import FinetuneConfig, Request
from maskwright.finetuning.examples import Examples, Row
from maskwright.finetuning.fit import choose_threshold, score_logits, train_seeds
from maskwright.finetuning.metrics import LOWER_IS_BETTER, beats
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.split import cut_folds, split_examples
from maskwright.finetuning.task import Logits, Task, TaskData, Tell, encode_sets, load_label_task
from maskwright.finetuning.text_tasks import Ranking, TextTask
from maskwright.formatting import show_score
from maskwright.inference.embed import Embedder
from maskwright.model.config import ProblemType
from maskwright.model_folder.folder import Loaded

MAX_EXAMPLES = 1000  # of ``auto``: folds take three times as long as the run itself
_NUM_FOLDS = 3
_SCALES, _STRENGTHS = (0.0, 0.25, 0.5, 1.0, 2.0), (1.0, 10.0, 100.0)
_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of the encoder in a number
_TINY = 1e-4  # holds back weights without effect
_ABSENT = -10.0  # the logit of a label that the examples of a fit do not have
Matrix = NDArray[np.float64]


class Parts(NamedTuple):
    """What folds chose: the scale of the vectors, strength, both weights, and biases [K]."""

    scale: float
    strength: float
    encoder: float
    linear: float
    shift: Matrix


@dataclass(frozen=True)
class FittedBeside:
    """The linear model to save, and one that has not seen the validation examples."""

    saved: Beside
    unseen: Beside

    def answer(self, data: TaskData, examples: Examples, logits: Sequence[Logits]) -> list[Logits]:
        """Return the logits of validation or test examples, with those of the linear model."""
        model = self.unseen if examples is data.valid else self.saved
        texts = [row.texts for row in examples.rows]
        return [*model(np.stack(logits), texts)]


def has_features(task: Task) -> bool:
    """Return True if a linear model of words and vectors can label the examples of a task."""
    return isinstance(task, TextTask) and not isinstance(task, Ranking)


def check_beside(task: Task, config: FinetuneConfig) -> None:
    """Raise InputError if a linear model is asked for that there cannot be."""
    if config.beside != "on":
        return
    if not has_features(task):
        raise InputError(f"--beside on has no effect with --task {task.name}. Remove it.")
    if config.private:
        raise InputError(
            "--beside on saves words of the examples, which --private leaves out. Remove one of "
            "them."
        )


def is_due(request: Request, data: TaskData, report: Tell) -> bool:
    """Return True if a linear model is to be fitted; report if there are too many examples."""
    config = request.config
    if config.beside == "on":
        return True
    others = config.private or config.class_weights or request.teacher is not None
    if config.beside == "off" or others or not has_features(data.task):
        return False
    if is_large := len(data.train.rows) > MAX_EXAMPLES:
        report(f"no linear model beside, as there are over {MAX_EXAMPLES:,} examples (--beside on)")
    return not is_large


def fit_beside(
    request: Request,
    data: TaskData,
    loaded: Loaded[Any],
    device: torch.device,
    pulse: Pulse,
) -> FittedBeside | None:
    """Return the linear model for a fine-tuned encoder; None if it is off, or folds are against it.

    `loaded` is the encoder before fine-tuning.
    """
    config = request.config
    if not is_due(request, data, pulse.say):
        return None
    seen = [*data.train.rows] if request.files.valid else [*data.train.rows, *data.valid.rows]
    pulse.say(
        f"beside a bag of words: {_NUM_FOLDS} folds of {len(seen):,} examples, each answered by "
        "an encoder that was fine-tuned on the others"
    )
    try:
        folds = [*_list_folds(request, data, loaded, seen)]
    except CorpusError:  # as all examples of one side have one label
        folds = []
    if len(folds) < _NUM_FOLDS:
        pulse.say("beside: off. The examples of each label are too few for folds.")
        return None
    loaded.model.to(device)
    vectors = Vectors(open_embedder(loaded))
    answered = _join(folds)
    encoder = _answer_folds(folds, loaded, replace(config, seeds=1), device, pulse)
    parts, found = choose_parts(data, folds, answered, encoder, vectors)
    gains = parts.linear > _TINY and is_certain(data, answered, encoder, found)
    shift, metric = choose_shift(data, answered, found), data.deciding
    parts, found = parts._replace(shift=parts.shift + shift), (found + shift).astype(np.float32)
    threshold = choose_threshold(data, answered, [*encoder])
    alone = score_logits(data, answered, [*encoder], threshold)[metric]
    both = score_logits(data, answered, [*found])[metric]
    if data.task.problem == "regression":  # by fold
        sign = 1.0 if metric in LOWER_IS_BETTER else -1.0
        alone, both = (sign * rate(data, folds, one.astype(np.float64)) for one in (encoder, found))
    helps = gains and not beats(metric, alone, both)
    verdict = "on" if helps or config.beside == "on" else "off"
    pulse.say(
        f"beside: {verdict}. In folds {metric} {show_score(both)}, of the encoder alone "
        f"{show_score(alone)}"
    )
    if verdict == "off":
        return None
    saved = fit_parts(data, seen, parts, vectors)
    if request.files.valid:
        return FittedBeside(saved, saved)
    return FittedBeside(saved, fit_parts(data, data.train.rows, parts, vectors))


def is_certain(
    data: TaskData, answered: Examples, encoder: NDArray[np.float32], both: NDArray[np.float32]
) -> bool:
    """Return True if the loss falls by over two standard errors; of numbers also without.

    The encoder's logits are calibrated first, so that the gain is not one of boldness. The loss of
    400 examples tells more than their accuracy.
    """
    if data.task.problem == "regression":
        return True  # shares of a mean, which differ little where they do not help
    targets = torch.as_tensor(answered.targets)
    own = encoder.astype(np.float64)
    alone = weigh_parts(data, own, np.zeros_like(own), targets)
    gains = list_losses(data, alone.encoder * own + alone.bias, targets)
    gains -= list_losses(data, both.astype(np.float64), targets)
    return bool(gains.mean() > 2 * gains.std() / len(gains) ** 0.5)


def list_losses(data: TaskData, logits: Matrix, targets: Tensor) -> Matrix:
    """Return the loss of each example [N]."""
    pairs = zip(torch.as_tensor(logits).split(1), targets.split(1), strict=True)
    return np.array([data.task.loss(*pair).item() for pair in pairs])


def _list_folds(
    request: Request, data: TaskData, loaded: Loaded[Any], rows: Sequence[Row]
) -> Iterator[TaskData]:
    """Yield the data of each fold, whose examples are the test examples."""
    task, files = load_label_task(request.files.task), request.files
    labels = [task.list_labels(row) for row in rows]
    for fold in cut_folds(rows, labels, _NUM_FOLDS):
        rest = sorted({*range(len(rows))} - {*fold})
        train: Sequence[Row] = [rows[n] for n in rest]
        chosen: Sequence[Row] = data.valid.rows
        if files.valid is None:
            train, chosen = split_examples(train, [labels[n] for n in rest], files.valid_share)
        if train and chosen and fold:
            sets = [train, chosen, [rows[n] for n in fold]]
            found = encode_sets(task, sets, files, loaded, request.config)
            if found.labels.names == data.labels.names:
                yield found


def _join(folds: Sequence[TaskData]) -> Examples:
    """Return the examples of all folds, in their order."""
    parts = [fold.held_out[-1] for fold in folds]
    return Examples(
        [one for part in parts for one in part.inputs],
        np.concatenate([np.asarray(part.targets) for part in parts]),
        rows=[row for part in parts for row in part.rows],
    )


def _answer_folds(
    folds: Sequence[TaskData],
    loaded: Loaded[Any],
    config: FinetuneConfig,
    device: torch.device,
    pulse: Pulse,
) -> NDArray[np.float32]:
    """Return the logits [N, K] of all folds, each by an encoder that was trained on the others."""
    found: list[Logits] = []
    for number, data in enumerate(folds, start=1):
        model = train_seeds(data, loaded.model, config, device, pulse=pulse).model.to(device)
        found += compute_logits(model, data.held_out[-1], data.pad_id, "fp32", pulse)
        pulse.say(f"  fold {number} of {len(folds)} is answered")
    return np.stack(found)


def rate(data: TaskData, folds: Sequence[TaskData], logits: Matrix) -> float:
    """Return the loss of the logits [N, K] of all folds; of numbers what selects their weights.

    The encoders of folds may differ in the scale of their numbers, so that a correlation is the
    mean of those of the folds.
    """
    held_out = [fold.held_out[-1] for fold in folds]
    if data.task.problem != "regression" or data.deciding in LOWER_IS_BETTER:
        targets = np.concatenate([np.asarray(examples.targets) for examples in held_out])
        return data.task.loss(torch.as_tensor(logits), torch.as_tensor(targets)).item()
    parts = np.split(logits, np.cumsum([len(examples) for examples in held_out])[:-1])
    pairs = zip(held_out, parts, strict=True)
    scores = [score_logits(data, test, [*part])[data.deciding] for test, part in pairs]
    return -float(np.nan_to_num(scores).mean())


def choose_shift(data: TaskData, answered: Examples, logits: NDArray[np.float32]) -> Matrix:
    """Return biases [K] to add to logits [N, K], for metrics that frequent labels dominate.

    Probabilities of a weak model are all near the shares of the labels, so that it always answers
    the more frequent one of two: accurate, and of no use to a metric such as Matthews' correlation.
    The alternative is to answer each as often as it occurs.
    """
    found, metric = [*logits], data.deciding
    num_labels = logits.shape[1]
    if data.task.problem == "multi_label_classification":
        return np.full(num_labels, -choose_threshold(data, answered, found))
    none = np.zeros(num_labels)
    if data.task.problem == "regression" or num_labels != 2 or metric == "accuracy":
        return none
    share = np.asarray(answered.targets).mean()
    shift = np.array([0.0, -np.quantile(logits[:, 1] - logits[:, 0], 1 - share)])
    moved = score_logits(data, answered, [*(logits + shift).astype(np.float32)])
    return (
        shift if beats(metric, moved[metric], score_logits(data, answered, found)[metric]) else none
    )


class Vectors:
    """The vectors of examples, each computed once."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._known: dict[tuple[str, ...], Matrix] = {}

    def __call__(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Return [N, D]."""
        keys = [tuple(each) for each in texts]
        if new := [key for key in dict.fromkeys(keys) if key not in self._known]:
            self._known |= dict(zip(new, compute_vectors(self.embedder, new), strict=True))
        return np.stack([self._known[key] for key in keys])


class Features:
    """The features of words and vectors, fitted to texts; vectors are scaled to one deviation."""

    def __init__(self, texts: Sequence[Sequence[str]], compute: Vectors) -> None:
        self.texts, self.compute = texts, compute
        self.bag: Any = fit_vectorizer(texts)
        vectors = compute(texts)
        self.mean = vectors.mean(0)
        self.size = (vectors.std(0) + 1e-6) * vectors.shape[1] ** 0.5

    def describe(self, texts: Sequence[Sequence[str]]) -> tuple[Any, Matrix]:
        """Return the features of words, sparse, and of vectors [N, D]."""
        sparse: Any = import_extra("scipy.sparse", "finetune", "a linear model")
        words = (
            sparse.csr_matrix((len(texts), 0)) if self.bag is None else count_words(self.bag, texts)
        )
        return words, (self.compute(texts) - self.mean) / self.size

    def join(self, words: Any, vectors: Matrix, scale: float) -> Any:
        """Return both as one sparse matrix."""
        sparse: Any = import_extra("scipy.sparse", "finetune", "a linear model")
        return sparse.hstack([words, scale * vectors]).tocsr() if scale else words


def choose_parts(
    data: TaskData,
    folds: Sequence[TaskData],
    answered: Examples,
    encoder: NDArray[np.float32],
    compute: Vectors,
) -> tuple[Parts, NDArray[np.float32]]:
    """Return the parts with the lowest loss in folds, and the logits [N, K] with them.

    Args:
        answered: the examples of all folds.
        encoder: [N, K] the logits of the encoders of the folds.
    """
    problem = data.task.problem
    options = list(product(_SCALES, _STRENGTHS))
    answers: dict[tuple[float, float], list[Matrix]] = {each: [] for each in options}
    for fold in folds:
        train, test = fold.train, fold.held_out[-1]
        features = Features([row.texts for row in train.rows], compute)
        learned = np.asarray(train.targets)
        fresh = [row.texts for row in test.rows]
        known, asked = features.describe(features.texts), features.describe(fresh)
        for scale, strength in options:
            fitted = fit_linear(
                problem, features.join(*known, scale), learned, strength, encoder.shape[1]
            )
            answers[scale, strength].append(features.join(*asked, scale) @ fitted[0].T + fitted[1])
    joined = {each: np.vstack(one) for each, one in answers.items()}
    own = encoder.astype(np.float64)
    if problem == "regression":  # the numbers keep their scale
        shares = [(*option, share, 1 - share) for option in options for share in _SHARES]
        best = min(
            shares, key=lambda one: rate(data, folds, one[2] * own + one[3] * joined[one[:2]])
        )
        found = best[2] * own + best[3] * joined[best[:2]]
        return Parts(*best, np.zeros(1)), found.astype(np.float32)
    targets = torch.as_tensor(answered.targets)
    weighed = {one: weigh_parts(data, own, joined[one], targets) for one in options}
    best = min(options, key=lambda one: weighed[one].loss)
    weights = weighed[best]
    found = (weights.encoder * own + weights.linear * joined[best] + weights.bias).astype(
        np.float32
    )
    return Parts(*best, weights.encoder, weights.linear, weights.bias), found


class _Weighed(NamedTuple):
    loss: float
    encoder: float
    linear: float
    bias: Matrix


def weigh_parts(data: TaskData, own: Matrix, linear: Matrix, targets: Tensor) -> _Weighed:
    """Return the weights of two logits [N, K] and the biases [K] with the lowest loss.

    As in Platt's calibration: weights make a timid model bolder, and biases move its limit.
    """
    pair, num_labels = [torch.as_tensor(one) for one in (own, linear)], own.shape[1]
    raw = torch.zeros(2 + num_labels, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([raw], max_iter=25, line_search_fn="strong_wolfe")

    def compute_loss() -> Tensor:
        first, second = F.softplus(raw[:2])  # not negative
        loss = data.task.loss(first * pair[0] + second * pair[1] + raw[2:], targets)
        return loss + _TINY * raw.square().sum()

    def step() -> float:
        optimizer.zero_grad()
        loss = compute_loss()
        loss.backward()
        return loss.item()

    optimizer.step(step)
    with torch.no_grad():
        first, second = F.softplus(raw[:2]).tolist()
        return _Weighed(compute_loss().item(), first, second, raw[2:].detach().numpy())


def fit_linear(
    problem: ProblemType, features: Any, targets: NDArray[Any], strength: float, num_labels: int
) -> tuple[Matrix, Matrix]:
    """Return weights [K, F] and biases [K] of scikit-learn's linear model."""
    weights = np.zeros((num_labels, features.shape[1]))
    bias = np.full(num_labels, _ABSENT)
    if not features.shape[1]:
        return weights, np.zeros(num_labels)
    with warnings.catch_warnings():  # a label that all examples have, or none
        warnings.filterwarnings("ignore", "Label .* is present in")
        model = build_linear(problem, strength).fit(features, targets)
    if problem == "regression":
        weights[0], bias[0] = model.coef_, model.intercept_
    elif problem == "multi_label_classification":
        for label, one in enumerate(model.estimators_):
            if hasattr(one, "coef_"):  # else all examples have the label, or none
                weights[label], bias[label] = one.coef_[0], one.intercept_[0]
            elif targets[:, label].any():
                bias[label] = -_ABSENT
    elif len(model.classes_) == 2:
        weights[model.classes_] = np.vstack([-model.coef_ / 2, model.coef_ / 2])
        bias[model.classes_] = np.array([-1, 1]) * model.intercept_[0] / 2
    else:
        weights[model.classes_], bias[model.classes_] = model.coef_, model.intercept_
    return weights, bias


def fit_parts(data: TaskData, rows: Sequence[Row], parts: Parts, compute: Vectors) -> Beside:
    """Return the linear model of examples with the parts that were chosen."""
    task, problem = data.task, data.task.problem
    assert isinstance(task, TextTask)
    features = Features([row.texts for row in rows], compute)
    words, vectors = features.describe(features.texts)
    joined = features.join(words, vectors, parts.scale)
    targets = task.encode_labels(rows, data.labels)
    num_labels, num_words = len(data.labels.names), words.shape[1]
    weights, bias = fit_linear(problem, joined, targets, parts.strength, num_labels)
    weights, bias = parts.linear * weights, parts.linear * bias + parts.shift
    of_vectors = parts.scale * weights[:, num_words:] / features.size if parts.scale else None
    if of_vectors is not None:
        bias = bias - of_vectors @ features.mean
    found = Weights(
        np.array(parts.encoder),
        weights[:, :num_words],
        np.zeros((num_labels, 0)) if of_vectors is None else of_vectors,
        bias,
    )
    bag = features.bag
    terms = {} if bag is None else {str(term): int(n) for term, n in bag.vocabulary_.items()}
    idf = np.zeros(0) if bag is None else np.asarray(bag.idf_, np.float64)
    is_char = bag is not None and bag.analyzer == "char"
    return Beside(
        Words(terms, idf, is_char), found, None if of_vectors is None else compute.embedder
    )
