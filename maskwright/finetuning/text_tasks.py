"""Tasks that label a text or a pair of texts: classification, multi-label, regression.

N examples, K labels.
"""

import json
import math
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import CorpusError, show_value
from maskwright.finetuning.baselines import BagOfWords, build_logistic, build_ridge, one_vs_rest
from maskwright.finetuning.examples import Examples, Row, encode_texts
from maskwright.finetuning.metrics import Scores, compute_metric
from maskwright.finetuning.request import TaskFiles
from maskwright.finetuning.table_files import TableRow, clean_name, read_columns
from maskwright.finetuning.task import OF_EMBEDDINGS, Baseline, Labels, LabelTask, Logits
from maskwright.tokenizer.tokenizer import Tokenizer

_BITS = {"0": 0, "0.0": 0, "False": 0, "false": 0, "1": 1, "1.0": 1, "True": 1, "true": 1}


class TextTask(LabelTask):
    """A task whose examples are rows of a table, with one or two texts and a label."""

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        return list(read_columns(path, files.columns, files.has_header, skipped))

    def encode(
        self, rows: Sequence[Row], labels: Labels, tokenizer: Tokenizer, max_length: int
    ) -> Examples:
        inputs, num_cut = encode_texts([row.texts for row in rows], tokenizer, max_length)
        return Examples(inputs, self.encode_labels(rows, labels), num_cut=num_cut, rows=rows)

    @abstractmethod
    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        """Return the targets of examples, [N] or [N, K]."""

    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return the labels of training examples, sorted as numbers if they are numbers."""
        counts = Counter(name for each in self.list_all(rows) for name in dict.fromkeys(each))
        least = 2 if self.counts_confusions else 1
        if len(counts) < least:
            raise CorpusError(
                f"all {len(rows)} examples have the label {next(iter(counts), 'none')}, but the"
                f" task needs at least {least}. Check --columns label=…"
            )
        names = tuple(sorted(counts, key=_sort_key))
        return Labels(names, tuple(counts[name] for name in names))

    def list_all(self, rows: Sequence[Row]) -> list[list[str]]:
        """Return the labels of each example."""
        return [self.list_labels(row) for row in rows]

    def collect(self, examples: Examples, logits: Sequence[Logits]) -> NDArray[Any]:
        return self.decide(np.stack(logits))

    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        targets = np.asarray(examples.targets)
        return {name: compute_metric(name, targets, predictions) for name in metrics}

    @abstractmethod
    def predict_majority(self, train: NDArray[Any], count: int) -> NDArray[Any]:
        """Return the most frequent target, repeated for `count` examples."""

    @abstractmethod
    def build_baseline(self) -> Any:
        """Return scikit-learn's model for a bag of words."""

    def fit_baselines(self, labels: Labels, train: Examples) -> dict[str, Baseline]:
        targets = np.asarray(train.targets)
        bag = BagOfWords(self.build_baseline(), [row.texts for row in train.rows], targets)

        def predict_majority(examples: Examples) -> NDArray[Any]:
            return self.predict_majority(targets, len(examples.rows))

        def predict_bag(examples: Examples) -> NDArray[Any]:
            found = bag([row.texts for row in examples.rows])
            return predict_majority(examples) if found is None else found

        return {"majority": predict_majority, "bag of words": predict_bag}


class Classification(TextTask):
    """One of several labels: cross-entropy, by default without class weights."""

    name = "classification"
    label_kind = "class"
    metrics = ("accuracy", "macro_f1", "matthews")
    other_metrics = ("f1", "micro_f1")

    def list_labels(self, row: Row) -> list[str]:
        """Return the label of a row; raise CorpusError if it is empty."""
        name = _spell(_of_table(row).values["label"], row.place)
        if not name:
            raise CorpusError(f"{row.place} has no label. Correct or remove the line.")
        return [name]

    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        return np.array(
            [labels.encode(self.list_labels(row), row.place)[0] for row in rows], np.int64
        )

    def predict_majority(self, train: NDArray[Any], count: int) -> NDArray[Any]:
        return np.full(count, np.bincount(train).argmax())

    def build_baseline(self) -> Any:
        return build_logistic()


class MultiLabel(TextTask):
    """Any number of labels: binary cross-entropy for each."""

    name = "multilabel"
    label_kind = "classes"
    problem = "multi_label_classification"
    metrics = ("micro_f1", "macro_f1")
    other_metrics = ("accuracy",)
    counts_confusions = False
    mistakes_note = "The answers with the most wrong or missing labels."

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        """Return rows; if the labels of all are 0/1 vectors of one length, by positions of 1."""
        rows = [_of_table(row) for row in super().read(path, files, skipped)]
        vectors = [_read_vector(row.values["label"]) for row in rows]
        lengths = {None if vector is None else len(vector) for vector in vectors} - {0}
        if len(lengths) != 1 or None in lengths:
            return [*rows]
        self.notes.append(f"{path.name}: the labels are vectors of 0 and 1, named from 0")
        return [
            replace(row, values={**row.values, "label": [n for n, bit in enumerate(bits) if bit]})
            for row, bits in zip(rows, vectors, strict=True)
            if bits is not None
        ]

    def settle_labels(self, rows: list[Row]) -> list[Row]:
        named = zip(map(_of_table, rows), self.list_all(rows), strict=True)
        return [replace(row, values={**row.values, "label": names}) for row, names in named]

    def list_all(self, rows: Sequence[Row]) -> list[list[str]]:
        """Return the labels of each example; if one has a ``|``, commas are parts of names."""
        marks = "|" if any("|" in str(_of_table(row).values["label"]) for row in rows) else ","
        return [self.list_labels(row, marks) for row in rows]

    def list_labels(self, row: Row, marks: str = "|,") -> list[str]:
        """Return the labels of a text split at `marks`, or of a list; there may be none."""
        value = _of_table(row).values["label"]
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                raise CorpusError(f"{row.place}: label = {value} is not a JSON list.") from None
        if not isinstance(value, list):
            value = re.split(f"[{marks}]", _spell(value, row.place))
        given = cast(list[Any], value)
        rule = "Name each label once. Vectors of 0 and 1 have the same length in all rows."
        for one in given:
            if isinstance(one, float) and math.isfinite(one) and not one.is_integer():
                raise CorpusError(f"{row.place}: label = {one} in a list is not a name. {rule}")
        names = [name for one in given if (name := _spell(one, row.place))]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise CorpusError(f"{row.place}: label = {twice[0]} is named twice. {rule}")
        return names

    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        marks = "|" if any("," in name for name in labels.names) else "|,"
        targets = np.zeros((len(rows), len(labels.names)), np.float32)
        for target, row in zip(targets, rows, strict=True):
            target[labels.encode(self.list_labels(row, marks), row.place)] = 1
        return targets

    def weigh(self, labels: Labels, num_examples: int) -> NDArray[np.float32]:
        """Return [K] weights of the positive examples of each label, relative to the negative."""
        counts = np.array(labels.counts, np.float64)
        # At least 1 in the numerator: a label of all examples keeps a positive weight.
        return (np.maximum(num_examples - counts, 1) / counts).astype(np.float32)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)

    def distill(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        softened = (teacher / temperature).sigmoid()
        return temperature**2 * self.loss(logits / temperature, softened)

    def decide(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        return (logits > 0).astype(np.float32)

    def name_values(self, labels: Labels, values: NDArray[Any]) -> list[Any]:
        names = np.array(labels.names, object)
        return [names[one > 0].tolist() for one in values]

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32] | None:
        return torch.as_tensor(logits).sigmoid().numpy()

    def pair_up(self, true: Any, found: Any) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        yield true, found

    def measure_mistake(self, true: Any, found: Any, probability: float | None) -> float:
        return len({*true} ^ {*found})

    def predict_majority(self, train: NDArray[Any], count: int) -> NDArray[Any]:
        """Return the labels that more than half of the examples have."""
        return np.broadcast_to(train.mean(0) > 0.5, (count, train.shape[1])).astype(np.float32)

    def build_baseline(self) -> Any:
        return one_vs_rest(build_logistic())


class Regression(TextTask):
    """A number: squared error on targets scaled to mean 0 and deviation 1."""

    name = "regression"
    label_kind = "number"
    problem = "regression"
    metrics = ("spearman", "pearson", "mean_squared_error")
    unused = (*OF_EMBEDDINGS, "class_weights")
    counts_confusions = False
    mistakes_note = "The answers with the largest errors."

    def list_labels(self, row: Row) -> list[str]:
        return []

    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return one output; raise CorpusError if all numbers are equal."""
        values = {_of_table(row).number("label") for row in rows}
        if len(values) < 2:
            rule = f"all {len(rows)} examples have label = {min(values):g}, but the task needs at"
            raise CorpusError(f"{rule} least 2 numbers. Check --columns label=…")
        return Labels(("score",), (len(rows),))

    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        return np.array([_of_table(row).number("label") for row in rows], np.float32)

    def normalize(self, targets: NDArray[Any] | list[list[int]]) -> tuple[float, float]:
        return float(np.mean(targets, dtype="f8")), float(np.std(targets, dtype="f8")) or 1.0

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return F.mse_loss(logits[:, 0], targets)

    def distill(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return F.mse_loss(logits, teacher)

    def decide(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        return logits[:, 0]

    def name_values(self, labels: Labels, values: NDArray[Any]) -> list[Any]:
        return values.tolist()

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32] | None:
        return None

    def pair_up(self, true: Any, found: Any) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        yield from ()

    def measure_mistake(self, true: Any, found: Any, probability: float | None) -> float:
        return abs(true - found)

    def predict_majority(self, train: NDArray[Any], count: int) -> NDArray[Any]:
        """Return the mean number."""
        return np.full(count, train.mean(), np.float32)

    def build_baseline(self) -> Any:
        return build_ridge()


def _of_table(row: Row) -> TableRow:
    assert isinstance(row, TableRow)
    return row


def _spell(value: Any, place: str) -> str:
    if isinstance(value, list | dict):
        several, nested = "for a list of them, give --task multilabel", "move it out of the object"
        rule = f"must be a string or a number; {several if isinstance(value, list) else nested}"
        raise CorpusError(f"{place}: label = {show_value(cast(object, value))} {rule}")
    if value is None or value != value:  # NaN stands for nothing, too
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return clean_name(str(value))


def _read_vector(value: Any) -> list[int] | None:
    """Return a vector of 0 and 1, such as ``[1.0, 0.0]`` or ``1 0``; [] for no value."""
    if value is None or value != value:
        return []
    parts = re.split(r"[\s,;|]+", text) if (text := str(value).strip("[] ")) else []
    return [_BITS[part] for part in parts] if len(parts) != 1 and _BITS.keys() >= {*parts} else None


def _sort_key(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
