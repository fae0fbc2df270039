"""The answers of a fine-tuned model to a set of examples, one by one and by class. N examples."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.files import replacing_file
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import Examples, read_texts
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.scoring import compute_logits, decide
from maskwright.finetuning.spans import OUTSIDE, SpanScores, marks_entities, score_spans
from maskwright.finetuning.tables import LabelledRow
from maskwright.model.classifier import Classifier
from maskwright.progress import Pulse
from maskwright.train.config import Precision

_SHORT_TEXT = 200  # characters
Rows = Sequence[LabelledRow | TaggedSentence]


@dataclass(frozen=True)
class Answers:
    """What is right and what a model answers, in the order of the examples.

    Attributes:
        rows: [N] the examples.
        true, found: [N] names of labels, lists of names (of several labels, or a tag for each
            word), or numbers.
        probabilities: [N] of the answers, where an example has one label; else None.
    """

    labels: Labels
    rows: Rows
    true: list[Any]
    found: list[Any]
    probabilities: list[float | None]

    def __len__(self) -> int:
        return len(self.true)

    def score_classes(self) -> dict[str, dict[str, float]]:
        """Return precision, recall, F1 and number of each class, or kind of entity."""
        if self.labels.task == "regression":
            return {}
        if self.labels.task == "tokens" and marks_entities(self.labels.names):
            classes = score_spans(self.true, self.found)[1]
        else:
            sets = [({*one}, {*other}) for one, other in self._pair_up()]
            right = Counter(name for one, other in sets for name in one & other)
            there = Counter(name for one, _ in sets for name in one)
            said = Counter(name for _, other in sets for name in other)
            classes = {
                name: SpanScores(there[name], said[name], right[name]) for name in self.labels.names
            }
        return {
            name: {
                "precision": scores.precision,
                "recall": scores.recall,
                "f1": scores.f1,
                "examples": scores.num_true,
            }
            for name, scores in classes.items()
        }

    def count_confusions(self) -> dict[str, dict[str, int]]:
        """Return right label -> answer -> how often, without zeros; of words their tags.

        Nothing where there are several labels at once, or numbers.
        """
        if self.labels.task not in ("classification", "tokens"):
            return {}
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for (true,), (found,) in self._pair_up():
            counts[true][found] += 1
        return {
            name: {other: counts[name][other] for other in self.labels.names if counts[name][other]}
            for name in self.labels.names
            if name in counts
        }

    def _pair_up(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield the names of what is right and of the answer, of each text or each word."""
        for true, found in zip(self.true, self.found, strict=True):
            if self.labels.task == "multilabel":
                yield true, found
            elif self.labels.task == "tokens":
                yield from (((t,), (f,)) for t, f in zip(true, found, strict=True))
            else:
                yield (true,), (found,)


def answer_examples(
    model: Classifier,
    examples: Examples,
    rows: Rows,
    labels: Labels,
    pad_id: int,
    precision: Precision,
    pulse: Pulse | None = None,
) -> Answers:
    """Let a model answer `examples`, which `rows` have become."""
    logits = compute_logits(model, examples, pad_id, precision, pulse)
    if examples.sentences is not None:
        joined = examples.sentences.join([one.argmax(1).tolist() for one in logits])
        true, found = (
            [[labels.names[number] for number in one] for one in each]
            for each in (examples.sentences.targets, joined)
        )
        return Answers(labels, rows, true, found, [None] * len(true))
    stacked = np.stack(logits)
    targets, decided = np.asarray(examples.targets), decide(labels.task, stacked)
    probabilities: list[float | None] = [None] * len(stacked)
    if labels.task == "classification":
        probabilities = torch.from_numpy(stacked).softmax(1).amax(1).tolist()
    return Answers(labels, rows, _name(labels, targets), _name(labels, decided), probabilities)


def _name(labels: Labels, values: NDArray[Any]) -> list[Any]:
    if labels.task == "regression":
        return values.tolist()
    if labels.task == "multilabel":
        names = np.array(labels.names, object)
        return [names[one > 0].tolist() for one in values]
    return [labels.names[number] for number in values]


def write_predictions(folder: Path, answers: Answers) -> Path:
    """Write ``predictions.csv``, or of tags ``predictions.conll``: word, right tag and answer."""
    kind = "conll" if answers.labels.task == "tokens" else "csv"
    path = folder / f"predictions.{kind}"
    # A text from JSON may hold half of a surrogate pair, which UTF-8 has not.
    with (
        replacing_file(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        if kind == "conll":
            file.writelines(_list_lines(answers))
        else:
            csv.writer(file).writerows(_list_rows(answers))
    return path


def _list_lines(answers: Answers) -> Iterator[str]:
    for row, true, found in zip(answers.rows, answers.true, answers.found, strict=True):
        assert isinstance(row, TaggedSentence)
        yield from (f"{w}\t{t}\t{f}\n" for w, t, f in zip(row.words, true, found, strict=True))
        yield "\n"


def _list_rows(answers: Answers) -> Iterator[list[Any]]:
    has_probability = answers.labels.task == "classification"
    for number, (texts, true, found, probability) in enumerate(list_texts(answers)):
        if number == 0:
            names = ["sentence1", "sentence2"][: len(texts)]
            yield [*names, "label", "prediction", *["probability"] * has_probability]
        shown = [f"{probability:.4f}"] if has_probability else []
        yield [*texts, show_answer(true), show_answer(found), *shown]


def list_texts(answers: Answers) -> Iterable[tuple[list[str], Any, Any, float | None]]:
    """Yield the texts of each example, what is right, the answer and its probability."""
    for row, *rest in zip(
        answers.rows, answers.true, answers.found, answers.probabilities, strict=True
    ):
        texts = [" ".join(row.words)] if isinstance(row, TaggedSentence) else read_texts(row)
        yield texts, rest[0], rest[1], rest[2]


def choose_example(answers: Answers) -> list[str]:
    """Return the texts of an example that is quickly read: the first short one, else the shortest.

    A sentence with an entity comes before those without, whatever their lengths.
    """

    def rank(example: tuple[list[str], Any, Any, float | None]) -> tuple[bool, int]:
        texts, true, *_ = example
        is_empty = answers.labels.task == "tokens" and set(true) == {OUTSIDE}
        return is_empty, max(sum(map(len, texts)), _SHORT_TEXT)

    return min(list_texts(answers), key=rank)[0]


def show_answer(value: Any) -> str:
    """Return a label, ``a|b`` of several labels, or a number."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "|".join(value) if isinstance(value, list) else str(value)
