"""A fine-tuned model to export, compared and scored on examples of its task.

The examples are those that the model was scored on, or built-in sentences if their file is gone.
Shapes: B inputs in a batch, L tokens in the longest, K labels.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maskwright.corpus.column_roles import LABEL, NEGATIVE, TEXT_ROLES, Column
from maskwright.corpus.table_files import list_names
from maskwright.corpus.text_inputs import has_conll_name
from maskwright.errors import InputError
from maskwright.files import write_text
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import Examples, collate, encode_texts, encode_words
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.task import (
    Labels,
    LabelTask,
    choose_metrics,
    decide,
    find_label_task,
    load_label_task,
)
from maskwright.inference.text_model import plan_batches
from maskwright.interop.comparison import (
    PYDOCS,
    Compute,
    OutputComparison,
    allow,
    choose_texts,
    max_or_nan,
)
from maskwright.interop.masked_lm_source import MaskedModelSource, MaskJudge, check_equal_ids
from maskwright.interop.targets import INT8_DEFAULTS, Int8Options
from maskwright.interop.vector_source import VectorSource
from maskwright.model.classifier import Classifier
from maskwright.model_folder.classifier_folder import (
    LoadedClassifier,
    open_classifier,
    save_classifier,
)
from maskwright.model_folder.families import native_classifier
from maskwright.model_folder.folder import CARD, read_card
from maskwright.model_folder.model_card import describe_labels
from maskwright.model_folder.native.family import Family
from maskwright.runs.run_directory import read_example_files

NUM_EXAMPLES = 512  # from the beginning of the file
_COLUMNS = (*TEXT_ROLES, LABEL)  # of a table, unless a run has recorded others
_BATCH_TOKENS, _TIMED_ROWS = 2048, 8
Logits = list[NDArray[np.float32]]  # for each input: [K], or [words, K]


@dataclass(frozen=True)
class ExampleFile:
    """A file of labeled examples and its layout, as `maskwright finetune` read it.

    Attributes:
        columns: the role of each column -> its name or position.
        has_header: True if a table begins with column names; None: if `columns` has names.
        task: the name of its task; None: unknown.
    """

    path: Path
    columns: Mapping[str, Column] = field(default_factory=dict)
    has_header: bool | None = None
    task: str | None = None


@dataclass(frozen=True)
class TaskExamples:
    """Inputs of a fine-tuned model.

    Attributes:
        source: the name of their file, or of the built-in texts.
        task: the task of the model.
        names: the names of its labels.
        texts: the text or two texts of each input; None for a part of a longer sentence.
        encoded: the inputs, and their targets if `labeled`.
        pad_id: the tokenizer's padding id.
    """

    source: str
    task: LabelTask
    names: tuple[str, ...]
    texts: list[tuple[str, ...] | None]
    encoded: Examples
    pad_id: int
    labeled: bool

    def run(self, compute: Compute) -> Logits:
        """Return the logits of each input, computed in padded batches as in `compute_logits`."""
        found: list[Any] = [None] * len(self.encoded)
        for indices in plan_batches(self.encoded.lengths, _BATCH_TOKENS):
            logits = compute(*self.batch(indices)).numpy()
            for row, index in zip(logits, indices, strict=True):
                positions = self.encoded.positions
                found[index] = row if positions is None else row[positions[index]]
        return found

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids, attention mask and token types of a batch of inputs: int64 [B, L] each."""
        batch = collate([self.encoded.inputs[index] for index in indices], self.pad_id)
        shape = (len(indices), -1)
        real = (batch.context.segment_ids == 0).long()
        return batch.input_ids.view(shape), real.view(shape), batch.token_type_ids.view(shape)


class ClassifierSource:
    """A fine-tuned model to export: as `MaskedModelSource`, for the examples of its task.

    Raises as `open_classifier` and `choose_examples` do.
    """

    has_unused_head, example_text = False, "A text."

    def __init__(
        self, folder: Path, file: ExampleFile | None, int8: Int8Options = INT8_DEFAULTS
    ) -> None:
        self.loaded, self.card = open_classifier(folder), read_card(folder)
        level = self.model.head_config.level
        if level == "span":
            raise InputError(
                f"{folder} answers questions; such models cannot be exported. Load the folder with "
                "transformers' AutoModelForQuestionAnswering."
            )
        self.examples, self.file, self.int8 = choose_examples(self.loaded, file), file, int8
        self.texts_from, self.max_length = self.examples.source, self.loaded.max_length
        self.metadata = describe_labels(level, "transformers")
        self.labels_tokens = level == "token"
        kind = "Token" if self.labels_tokens else "Sequence"
        self.auto_class = f"AutoModelFor{kind}Classification"
        sizes = "batch, length, labels" if self.labels_tokens else "batch, labels"
        self.output_shape = f"[{sizes}], labels in the order of `id2label` in `config.json`"

    @property
    def model(self) -> Classifier:
        return self.loaded.model

    def save(self, folder: Path) -> None:
        loaded = self.loaded
        save_classifier(
            folder,
            loaded.model,
            loaded.tokenizer,
            loaded.labels,
            loaded.problem,
            add_special_tokens=loaded.add_special_tokens,
            max_length=loaded.max_length,
            num_texts=loaded.num_texts,
            words=loaded.words if self.labels_tokens else None,
        )
        if self.card is not None:
            write_text(folder / CARD, self.card)

    def find_family(self) -> tuple[Family | None, str]:
        head = self.model.head_config
        native, reason = native_classifier(self.model.config, head.level, head.pooling)
        return (None if reason else native.family), reason

    def check_ids(self, tokenizer: Any) -> None:
        for texts, ours in zip(self.examples.texts, self.examples.encoded.inputs, strict=True):
            if texts is not None:
                found = tokenizer(*texts, truncation=True)["input_ids"]
                check_equal_ids(texts[0], ours.ids, found)

    def compare(self, compute: Compute) -> OutputComparison:
        encoded = self.examples.encoded
        ours = compute_logits(self.model, encoded, self.examples.pad_id, "fp32")
        theirs = self.examples.run(compute)
        largest = scale = 0.0
        for one, other in zip(ours, theirs, strict=True):
            if one.size:  # else the input is a part of a sentence without a word start
                largest = max_or_nan(largest, float(np.abs(one - other).max()))
                scale = max(scale, float(np.abs(one).max()))
        num_tokens = sum(encoded.lengths)
        return OutputComparison("logits", largest, allow(scale), len(encoded), num_tokens)

    def judge(self) -> "ExampleJudge":
        if not self.examples.labeled:
            raise InputError(
                "onnx-int8 needs labeled examples to measure its loss of quality. Name a file with "
                "--data, or export from a run directory whose task files still exist."
            )
        return ExampleJudge(self.examples)

    def calibration(self, name: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        if not Path(name).is_file():
            raise InputError(f"--calibrate = {name} must be a file of labeled examples. Name one.")
        assert self.file is not None  # or `judge` has raised
        examples = choose_examples(self.loaded, replace(self.file, path=Path(name)))
        for indices in plan_batches(examples.encoded.lengths, _BATCH_TOKENS):
            yield examples.batch(indices)


def find_examples(run: Path, model: Path, data: Path | str | None) -> ExampleFile | None:
    """Return the examples of a fine-tuned model's task: `data`, or those it was scored on, or None
    if the files of the run are gone.

    Args:
        run: the run directory of the model, or the model folder.

    Raises:
        InputError: there is no file at `data`.
    """
    asked = read_example_files(run) or read_example_files(model.parent)
    given = [data] if data else [asked.get(name) for name in ("test", "valid", "train")]
    found = next((Path(name) for name in given if name and Path(name).is_file()), None)
    if found is None:
        if data:
            raise InputError(f"--data = {data} does not exist. Name a file of labeled examples.")
        return None
    if not asked and not has_conll_name(found):  # a model folder without its run
        names = list_names(found)
        return ExampleFile(found, {role: role for role in _COLUMNS if role in names})
    columns = asked.get("columns") or {}
    return ExampleFile(found, columns, asked.get("has_header"), asked.get("task"))


def choose_examples(loaded: LoadedClassifier, file: ExampleFile | None) -> TaskExamples:
    """Return the first examples of `file`, or built-in sentences without labels.

    Raises:
        CorpusError, InputError: the file has no examples, or labels that the model does not know.
    """
    level = loaded.model.head_config.level
    of_tokens, named = level == "token", file and file.task  # as ranking is a regression, too
    task = load_label_task(named) if named else find_label_task(level, loaded.problem)
    if file is None:
        texts, encoded = _encode_built_in(loaded, of_tokens)
    else:
        texts, encoded = _encode_file(loaded, file, task)
    source, pad_id = PYDOCS if file is None else file.path.name, loaded.tokenizer.pad_id
    return TaskExamples(source, task, loaded.labels, texts, encoded, pad_id, file is not None)


Encoded = tuple[list[tuple[str, ...] | None], Examples]


def _encode_built_in(loaded: LoadedClassifier, of_tokens: bool) -> Encoded:
    texts = list(choose_texts(loaded))
    if of_tokens:
        words = [text.split() for text in texts]
        encoded, owners = encode_words(words, loaded.tokenizer, loaded.max_length)
        return _join_words(words, [sentence for sentence, _ in owners]), encoded
    inputs, _ = encode_texts([(text,) for text in texts], loaded.tokenizer, loaded.max_length)
    return [(text,) for text in texts], Examples(inputs, np.zeros(len(inputs)))


def _encode_file(loaded: LoadedClassifier, file: ExampleFile, task: LabelTask) -> Encoded:
    """Return the first examples of a file, as the task reads them."""
    if task.level == "token":
        if not all(str(column).lstrip("-").isdecimal() for column in file.columns.values()):
            raise InputError(
                f"{file.path} is a table, but this model labels words. Give CoNLL columns."
            )
    else:
        needed = ("sentence1",) if NEGATIVE in file.columns else ("sentence1", "label")
        if missing := next((role for role in needed if role not in file.columns), None):
            raise InputError(
                f"{file.path} has no column {missing}: examples must have the columns sentence1"
                " (and sentence2) and label. Rename its columns, or export from the run directory,"
                " which has recorded them."
            )
    layout = TaskFiles(
        task=task.name, train=Path(), columns=file.columns, has_header=file.has_header
    )
    rows = task.read(file.path, layout, Counter())[:NUM_EXAMPLES]
    if not rows:
        raise InputError(f"{file.path} contains no examples. Name another file.")
    encoded = task.encode(rows, Labels(loaded.labels), loaded.tokenizer, loaded.max_length)
    if encoded.sentences is None:
        return [tuple(row.texts) for row in rows], encoded
    words = [row.words for row in rows if isinstance(row, TaggedSentence)]
    return _join_words(words, [sentence for sentence, _ in encoded.sentences.owners]), encoded


def _join_words(
    words: Sequence[Sequence[str]], owners: Sequence[int]
) -> list[tuple[str, ...] | None]:
    """Return the text of each input; None if its sentence was divided into several inputs."""
    return [(" ".join(words[owner]),) if owners.count(owner) == 1 else None for owner in owners]


class ExampleJudge:
    """The judge of a quantized graph by its predictions for labeled examples, as `MaskJudge`."""

    def __init__(self, examples: TaskExamples) -> None:
        self.examples, task = examples, examples.task
        self.questions = f"{len(examples.encoded):,} examples of {examples.source}"
        # The limit of a loss is a share, which an error, on the scale of the numbers, is not.
        chosen = "spearman" if "spearman" in task.metrics else None
        self.metric = choose_metrics(task, Labels(examples.names), chosen)[0]
        same = f"the same {'tag' if task.level == 'token' else 'label'} for"
        self.agreement = "predictions that correlate by" if task.problem == "regression" else same

    def answer(self, graph: Compute) -> Logits:
        return self.examples.run(graph)

    def agree(self, before: Any, after: Any) -> float:
        first, second = self._decide(before), self._decide(after)
        if self.examples.task.problem == "regression":
            with np.errstate(invalid="ignore"):  # constant predictions have no correlation: NaN
                return float(np.corrcoef(first, second)[0, 1])
        same = first == second
        return float((same.all(-1) if same.ndim > 1 else same).mean())

    def score(self, answers: Any) -> float:
        task, encoded = self.examples.task, self.examples.encoded
        labels, predictions = Labels(self.examples.names), task.collect(encoded, answers)
        return task.score(labels, (self.metric,), encoded, predictions)[self.metric]

    def timed_batch(self) -> tuple[Tensor, Tensor, Tensor]:
        lengths = self.examples.encoded.lengths
        indices = sorted(range(len(lengths)), key=lengths.__getitem__)
        return self.examples.batch(indices[-_TIMED_ROWS:])

    def _decide(self, logits: Logits) -> NDArray[Any]:
        return decide(self.examples.task.problem, np.vstack(logits))


Source = MaskedModelSource | ClassifierSource | VectorSource
Judge = MaskJudge | ExampleJudge
