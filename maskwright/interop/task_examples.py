"""The examples of a task, on which the export of a fine-tuned model is compared with the model.

They are the task's own, read from the file on which the model was scored, or built-in sentences
where there is no such file. B inputs in a batch, L tokens in the longest, K labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import InputError
from maskwright.finetuning.conll import read_conll
from maskwright.finetuning.examples import (
    Examples,
    collate,
    encode_texts,
    encode_words,
    plan_scoring,
)
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.tables import Column, read_columns
from maskwright.finetuning.task import Labels, LabelTask, find_label_task
from maskwright.interop.comparison import RELATIVE_TOLERANCE, TOLERANCE, Compute, Difference
from maskwright.interop.onnx_graph import OnnxModel
from maskwright.interop.sentences import choose_texts
from maskwright.model_folder.classifier_folder import LoadedClassifier

NUM_EXAMPLES = 512  # from the beginning of the file
_BATCH_TOKENS, _TIMED_ROWS = 2048, 8
Logits = list[NDArray[np.float32]]  # of each input: [K], or [words, K]


@dataclass(frozen=True)
class ExampleFile:
    """A file of labelled examples and how they are stored in it, as `maskwright finetune` read it.

    Attributes:
        columns: what each is for -> its name or position.
        has_header: whether a table begins with names; None: if any column is called by name.
    """

    path: Path
    columns: Mapping[str, Column]
    has_header: bool | None = None


@dataclass(frozen=True)
class TaskExamples:
    """Inputs of a fine-tuned model.

    Attributes:
        source: where they are from.
        task: what the model does.
        names: of its labels.
        texts: of each input, one or two; None where an input is a piece of a longer sentence.
        encoded: the inputs, and their targets if `labeled`.
        pad_id: of the tokenizer.
    """

    source: str
    task: LabelTask
    names: tuple[str, ...]
    texts: list[tuple[str, ...] | None]
    encoded: Examples
    pad_id: int
    labeled: bool

    @property
    def num_tokens(self) -> int:
        return sum(self.encoded.lengths)

    def run(self, compute: Compute) -> Logits:
        """Return the logits of each input, of padded batches, as `compute_logits` does."""
        found: list[Any] = [None] * len(self.encoded)
        for numbers in plan_scoring(self.encoded.lengths, _BATCH_TOKENS):
            logits = compute(*self.batch(numbers)).numpy()
            for row, number in zip(logits, numbers, strict=True):
                positions = self.encoded.positions
                found[number] = row if positions is None else row[positions[number]]
        return found

    def batch(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids, attention mask and token types of some inputs: int64 [B, L] each."""
        batch = collate([self.encoded.inputs[number] for number in numbers], self.pad_id)
        shape = (len(numbers), -1)
        real = (batch.context.segment_ids == 0).long()
        return (
            batch.input_ids.view(shape),
            real.view(shape),
            batch.token_type_ids.view(shape),
        )


def choose_examples(loaded: LoadedClassifier, file: ExampleFile | None) -> TaskExamples:
    """Return the first examples of `file`, or built-in sentences without labels.

    Raises:
        CorpusError: the file cannot be read, or has labels that the model does not know.
        InputError: it holds no examples.
    """
    level = loaded.model.head_config.level
    of_tokens, task = level == "token", find_label_task(level, loaded.problem)
    if file is None:
        texts = list(choose_texts(loaded))
        return _gather(loaded, "pydocs", task, *_encode_texts(loaded, texts, of_tokens), False)
    labels = Labels(loaded.labels)
    if of_tokens:
        columns = {role: int(place) for role, place in file.columns.items()}
        sentences = list(islice(read_conll(file.path, **columns), NUM_EXAMPLES))
        encoded = task.encode(sentences, labels, loaded.tokenizer, loaded.max_length)
        assert encoded.sentences is not None
        numbers = [number for number, _ in encoded.sentences.owners]
        named = [" ".join(sentences[number].words) for number in numbers]
        texts = [
            (one,) if numbers.count(number) == 1 else None
            for number, one in zip(numbers, named, strict=True)
        ]
        return _gather(loaded, file.path.name, task, texts, encoded, True)
    missing = next((role for role in ("sentence1", "label") if role not in file.columns), None)
    if missing:
        raise InputError(
            f"{file.path} has no column {missing}: examples have the columns sentence1 (and "
            "sentence2) and label. Rename its columns, or export from the run directory, which "
            "knows them."
        )
    rows = list(islice(read_columns(file.path, file.columns, file.has_header), NUM_EXAMPLES))
    if not rows:
        raise InputError(f"{file.path} holds no examples to compare on.")
    encoded = task.encode(rows, labels, loaded.tokenizer, loaded.max_length)
    texts = [tuple(row.texts) for row in rows]
    return _gather(loaded, file.path.name, task, texts, encoded, True)


def _encode_texts(
    loaded: LoadedClassifier, texts: list[str], of_tokens: bool
) -> tuple[list[tuple[str, ...] | None], Examples]:
    if of_tokens:
        words = [text.split() for text in texts]
        encoded, owners = encode_words(words, loaded.tokenizer, loaded.max_length)
        numbers = [number for number, _ in owners]
        return [
            (" ".join(words[number]),) if numbers.count(number) == 1 else None for number in numbers
        ], encoded
    inputs, _ = encode_texts([(text,) for text in texts], loaded.tokenizer, loaded.max_length)
    return [(text,) for text in texts], Examples(inputs, np.zeros(len(inputs)))


def _gather(
    loaded: LoadedClassifier,
    source: str,
    task: LabelTask,
    texts: Sequence[tuple[str, ...] | None],
    encoded: Examples,
    labeled: bool,
) -> TaskExamples:
    pad_id = loaded.tokenizer.pad_id
    return TaskExamples(source, task, loaded.labels, [*texts], encoded, pad_id, labeled)


def compare_classifier(
    loaded: LoadedClassifier, examples: TaskExamples, compute: Compute
) -> Difference:
    """Compare the logits of `compute` with the model's on all examples."""
    ours = compute_logits(loaded.model, examples.encoded, examples.pad_id, "fp32")
    theirs = examples.run(compute)
    largest = scale = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if not one.size:  # a piece of a sentence in which no word begins
            continue
        apart = float(np.abs(one - other).max())
        largest = apart if not apart <= largest else largest  # NaN stays
        scale = max(scale, float(np.abs(one).max()))
    allowed = max(TOLERANCE, RELATIVE_TOLERANCE * scale)
    return Difference("logits", largest, allowed, len(examples.encoded), examples.num_tokens)


@dataclass(frozen=True)
class ExampleJudge:
    """Judges a quantized graph by its answers to a task's labeled examples."""

    examples: TaskExamples

    @property
    def questions(self) -> str:
        return f"{len(self.examples.encoded):,} examples of {self.examples.source}"

    @property
    def metric(self) -> str:
        labels = Labels(self.examples.names, (1,) * len(self.examples.names))
        return self.examples.task.choose_metrics(labels, None)[0]

    @property
    def agreement(self) -> str:
        return {
            "regression": "numbers that correlate by",
            "tokens": "the same tag for",
        }.get(self.examples.task.name, "the same label for")

    def answer(self, graph: OnnxModel) -> Logits:
        return self.examples.run(graph)

    def agree(self, before: Logits, after: Logits) -> float:
        first, second = self._decide(before), self._decide(after)
        if self.examples.task.problem == "regression":
            with np.errstate(invalid="ignore"):  # numbers that are all the same
                return float(np.corrcoef(first, second)[0, 1])
        same = first == second
        return float((same.all(-1) if same.ndim > 1 else same).mean())

    def score(self, answers: Logits) -> float:
        task, labels = self.examples.task, Labels(self.examples.names)
        return task.score(labels, (self.metric,), self.examples.encoded, answers)[self.metric]

    def timed_batch(self) -> tuple[Tensor, Tensor, Tensor]:
        lengths = self.examples.encoded.lengths
        numbers = sorted(range(len(lengths)), key=lengths.__getitem__)
        return self.examples.batch(numbers[-_TIMED_ROWS:])

    def _decide(self, logits: Logits) -> NDArray[Any]:
        return self.examples.task.decide(np.vstack(logits))


def iterate_plain(examples: TaskExamples, special: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of inputs that are whole texts without special tokens written in them."""
    for number, texts in enumerate(examples.texts):
        if texts is not None and not any(token in text for token in special for text in texts):
            yield number
