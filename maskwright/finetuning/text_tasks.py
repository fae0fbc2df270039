"""Tasks that label a text or a pair: classification, multi-label, regression, ranking.

N examples, K labels.
"""

import json
import math
import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.corpus.column_roles import FIRST, LABEL, NEGATIVE, SECOND, Column, find_usual
from maskwright.corpus.table_files import TableRow, clean_name, list_names, read_columns
from maskwright.errors import CorpusError, show_value
from maskwright.finetuning.baselines import fit_bag_of_words, predict_constant
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.doubts import join_counts
from maskwright.finetuning.examples import Examples, Row, encode_texts
from maskwright.finetuning.metrics import Scores, compute_metric
from maskwright.finetuning.task import (
    EMBEDDING_SETTINGS,
    Baseline,
    Labels,
    LabelTask,
    Logits,
    decide,
)
from maskwright.tokenizer.tokenizer import Tokenizer

_BITS = {"0": 0, "0.0": 0, "False": 0, "false": 0, "1": 1, "1.0": 1, "True": 1, "true": 1}


class TextTask(LabelTask):
    """A task whose examples are rows of a table, with one or two texts and a label."""

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        return list(read_columns(path, files.columns_of(path), files.has_header, skipped))

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
        each = (dict.fromkeys(self.list_labels(row)) for row in rows)
        counts = join_counts(Counter(name for names in each for name in names))
        least = 1 if self.problem == "multi_label_classification" else 2
        if len(counts) < least:
            raise CorpusError(
                f"all {len(rows)} examples have the label {next(iter(counts), 'none')}, but the"
                f" task needs at least {least}. Check --columns label=…"
            )
        names = tuple(sorted(counts, key=_sort_key))
        return Labels(names, tuple(counts[name] for name in names))

    def collect(self, examples: Examples, logits: Sequence[Logits]) -> NDArray[Any]:
        return decide(self.problem, np.stack(logits))

    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        targets = np.asarray(examples.targets)
        return {name: compute_metric(name, targets, predictions) for name in metrics}

    def fit_baselines(self, labels: Labels, train: Examples) -> dict[str, Baseline]:
        problem, targets = self.problem, np.asarray(train.targets)
        bag = fit_bag_of_words(problem, [row.texts for row in train.rows], targets)
        return {
            "majority": lambda examples: predict_constant(problem, targets, len(examples.rows)),
            "bag of words": lambda examples: bag([row.texts for row in examples.rows]),
        }


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


class MultiLabel(TextTask):
    """Any number of labels: binary cross-entropy for each."""

    name = "multilabel"
    label_kind = "classes"
    problem = "multi_label_classification"
    metrics = ("micro_f1", "macro_f1")
    other_metrics = ("accuracy",)
    mistakes_note = "The answers with the most wrong or missing labels."

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        """Return rows; if the labels of all are 0/1 vectors of one length, by positions of 1."""
        rows = [_of_table(row) for row in super().read(path, files, skipped)]
        vectors = [_read_vector(row.values["label"]) for row in rows]
        lengths = {None if vector is None else len(vector) for vector in vectors} - {0}
        if len(lengths) == 1 and None not in lengths:
            self.notes.append(f"{path.name}: the labels are vectors of 0 and 1, named from 0")
            found = [[n for n, bit in enumerate(bits or ()) if bit] for bits in vectors]
            rows = [_label(*each) for each in zip(rows, found, strict=True)]
        if path == files.train:  # if one label has a bar, commas are parts of names
            marks = "|" if any("|" in str(row.values["label"]) for row in rows) else ","
            rows = [_label(row, self.list_labels(row, marks)) for row in rows]
        return [*rows]

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

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)


class Regression(TextTask):
    """A number: squared error on targets scaled to mean 0 and deviation 1."""

    name = "regression"
    label_kind = "number"
    problem = "regression"
    metrics = ("mean_squared_error", "spearman", "pearson")
    unused = (*EMBEDDING_SETTINGS, "class_weights")
    scales_targets = True
    mistakes_note = "The answers with the largest errors."

    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return one output; raise CorpusError if all numbers are equal."""
        values = {_of_table(row).number("label") for row in rows}
        if len(values) < 2:
            rule = f"all {len(rows)} examples have label = {min(values):g}, but the task needs at"
            raise CorpusError(f"{rule} least 2 numbers. Check --columns label=…")
        return Labels(("score",), (len(rows),))

    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        return np.array([_of_table(row).number("label") for row in rows], np.float32)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return F.mse_loss(logits[:, 0], targets)


def _of_table(row: Row) -> TableRow:
    assert isinstance(row, TableRow)
    return row


def _label(row: TableRow, names: list[Any]) -> TableRow:
    return replace(row, values={**row.values, "label": names})


def _spell(value: Any, place: str) -> str:
    if isinstance(value, list | dict):
        several, nested = "for a list of them, give --task multilabel", "move it out of the object"
        rule = f"must be a string or a number; {several if isinstance(value, list) else nested}"
        raise CorpusError(f"{place}: label = {show_value(cast(object, value))} {rule}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = "" if value is None or value != value else clean_name(str(value))
    return "" if name == "NaN" else name  # as pandas may write no label


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


class Ranking(Regression):
    """The relevance of a passage to a query, of a cross-encoder: binary cross-entropy of a logit.

    Nogueira and Cho, "Passage Re-ranking with BERT", 2019.
    """

    name = "ranking"
    roles = (FIRST, SECOND, LABEL, NEGATIVE)
    metrics = ("mrr",)
    scales_targets = False
    mistakes_note = "The passages whose score is farthest from their relevance."

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        found = super().find_columns(train, given)
        names = list_names(train)
        if LABEL not in given and (NEGATIVE in given or found[LABEL] not in names):
            del found[LABEL]
            if usual := find_usual(NEGATIVE, names):
                found.setdefault(NEGATIVE, usual)
        if SECOND not in found or (LABEL in found) == (NEGATIVE in found):
            raise CorpusError(
                f"{train} needs a query, a passage, and either a label (1: relevant, 0: not) or a "
                "negative passage. Name them with --columns sentence1=… sentence2=… label=…"
            )
        return found

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        """Return pairs with a label; a row with a negative passage becomes two pairs."""
        rows: list[Row] = []
        for row in read_columns(path, files.columns_of(path), files.has_header, skipped):
            if NEGATIVE not in row.values:
                rows.append(row)
                continue
            values = dict(row.values)
            negative = values.pop(NEGATIVE)
            rows.append(TableRow(row.place, {**values, LABEL: 1}))
            rows.append(TableRow(row.place, {**values, SECOND: negative, LABEL: 0}))
        return rows

    def encode_labels(self, rows: Sequence[Row], labels: Labels) -> NDArray[Any]:
        targets = super().encode_labels(rows, labels)
        for row, target in zip(rows, targets, strict=True):
            if not 0 <= target <= 1:
                assert isinstance(row, TableRow)
                raise CorpusError(f"{row.place}: label = {target:g} must be between 0 and 1")
        return targets

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits[:, 0], targets)

    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        queries = [row.texts[0] for row in examples.rows]
        return {"mrr": measure_reciprocal_rank(queries, np.asarray(examples.targets), predictions)}


def measure_reciprocal_rank(
    queries: Sequence[str], relevance: NDArray[Any], scores: NDArray[Any]
) -> float:
    """Return the mean over queries of 1 / rank of the first relevant passage.

    Queries all of whose passages are relevant, or none, do not count; raise CorpusError if all are
    such. Among equal scores the relevant passage comes last.
    """
    passages: dict[str, list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        passages[query].append(number)
    ranks: list[int] = []
    for numbers in passages.values():
        found, right = scores[numbers], relevance[numbers] > 0.5
        if 0 < right.sum() < len(right):
            ranks.append(1 + int((found[~right] >= found[right].max()).sum()))
    if not ranks:
        raise CorpusError(
            "no query of the scored examples has both a relevant and another passage, so there is"
            " nothing to rank. Add such examples; finetune takes them as --valid."
        )
    return float(np.mean(1 / np.array(ranks)))
