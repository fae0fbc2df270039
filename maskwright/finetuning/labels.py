"""Labels of examples: their names, in one order, and what a model is trained towards.

N examples, K labels.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import CorpusError
from maskwright.finetuning.config import Task
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.tables import LabelledRow

_NUMBER = "score"  # the name of what a regression says
_SEPARATORS = "|,"


@dataclass(frozen=True)
class Labels:
    """The labels of a task, in the order of the logits.

    Attributes:
        counts: how often each occurs in the training examples.
    """

    task: Task
    names: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def find(cls, task: Task, rows: Sequence[LabelledRow]) -> "Labels":
        """The labels of training examples: in the order of numbers if they are such, else of text.

        Raises:
            CorpusError: a label that is none, or fewer than two different ones.
        """
        if task == "regression":
            for row in rows:
                read_number(row)
            return cls(task, (_NUMBER,), (len(rows),))
        read = _READERS[task]
        counts = Counter(name for row in rows for name in dict.fromkeys(read(row)))
        if len(counts) < (1 if task == "multilabel" else 2):
            raise CorpusError(
                f"all {len(rows)} examples have the label {next(iter(counts), 'none')}: there is "
                "nothing to tell apart. Is --columns label=… the right column?"
            )
        names = tuple(sorted(counts, key=_order))
        return cls(task, names, tuple(counts[name] for name in names))

    @classmethod
    def of_tags(cls, sentences: Iterable[Sequence[str]]) -> "Labels":
        """The tags of words, that of no entity first."""
        counts = Counter(tag for tags in sentences for tag in tags)
        names = tuple(sorted(counts, key=lambda tag: (tag != "O", tag)))
        return cls("tokens", names, tuple(counts[name] for name in names))

    def encode(self, rows: Sequence[LabelledRow]) -> NDArray[Any]:
        """Targets: [N] numbers of labels, [N, K] 0 or 1 of several, or [N] floats.

        Raises:
            CorpusError: a label that no training example has.
        """
        if self.task == "regression":
            return np.array([read_number(row) for row in rows], np.float32)
        numbers = {name: number for number, name in enumerate(self.names)}
        read = _READERS[self.task]
        found = [[self._number(name, numbers, row.place) for name in read(row)] for row in rows]
        if self.task == "classification":
            return np.array([number for (number,) in found], np.int64)
        targets = np.zeros((len(rows), len(self.names)), np.float32)
        for target, numbers_of_row in zip(targets, found, strict=True):
            target[numbers_of_row] = 1
        return targets

    def encode_tags(self, tags: Sequence[str], place: str) -> list[int]:
        """The number of each tag of a sentence; raises CorpusError as `encode` does."""
        numbers = {name: number for number, name in enumerate(self.names)}
        return [self._number(tag, numbers, place) for tag in tags]

    def weigh(self, num_examples: int) -> NDArray[np.float32]:
        """[K] factors by which all labels count alike in sum; of several at once, as yes and no."""
        counts = np.array(self.counts, np.float64)
        if self.task == "multilabel":  # a label of all examples still counts a little
            return (np.maximum(num_examples - counts, 1) / counts).astype(np.float32)
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)

    def _number(self, name: str, numbers: dict[str, int], place: str) -> int:
        if name not in numbers:
            known = ", ".join(self.names[:10]) + ", …" * (len(self.names) > 10)
            raise CorpusError(
                f"{place} has the label {name}, which no training example has: they have {known}."
            )
        return numbers[name]


def read_names(task: Task, example: LabelledRow | TaggedSentence) -> list[str]:
    """The labels of one example; none of one with a number.

    Raises:
        CorpusError: it has none, or something that is none.
    """
    if isinstance(example, TaggedSentence):
        return list(example.tags)
    return [] if task == "regression" else _READERS[task](example)


def read_number(row: LabelledRow) -> float:
    """The label of a row as a number.

    Raises:
        CorpusError: it is none, or not finite.
    """
    value = row.values["label"]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        remedy = "Write a point, not a comma." if "," in str(value) else "Correct the line."
        raise CorpusError(f"{row.place}: label = {value} is not a number. {remedy}")
    return number


def _read_one(row: LabelledRow) -> list[str]:
    name = _spell(row.values["label"])
    if not name:
        raise CorpusError(f"{row.place} has no label. Correct or remove the line.")
    return [name]


def _read_several(row: LabelledRow) -> list[str]:
    """``a|b`` or ``a,b``, a JSON list, or a list; none is allowed."""
    value = row.values["label"]
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise CorpusError(f"{row.place}: label = {value} is not a JSON list.") from None
    if isinstance(value, list):
        return [_spell(name) for name in value]
    text = _spell(value)
    separator = next((mark for mark in _SEPARATORS if mark in text), _SEPARATORS[0])
    return [name.strip() for name in text.split(separator) if name.strip()]


_READERS: dict[Task, Callable[[LabelledRow], list[str]]] = {
    "classification": _read_one,
    "multilabel": _read_several,
}


def _spell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
