"""The task that answers a question by a part of a text: extractive question answering.

A text that is too long for the model is read in overlapping windows (Devlin et al., "BERT", 2019).
The model scores each token as the first and as the last of the answer; [CLS] stands for no answer.
Files have the layouts of SQuAD (Rajpurkar et al., 2016; 2018: questions without an answer), and
scores are those of its script. N questions, W labeled tokens.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.corpus.table_files import TableRow, list_names, read_columns
from maskwright.errors import CorpusError, show_value
from maskwright.files import read_json
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.examples import Examples, Row, Windows
from maskwright.finetuning.metrics import Scores
from maskwright.finetuning.task import (
    EMBEDDING_SETTINGS,
    SPLIT_FLAGS,
    Answer,
    Baseline,
    Labels,
    LabelTask,
    Logits,
)
from maskwright.tokenizer.template import InputTemplate, ModelInput
from maskwright.tokenizer.tokenizer import Tokenizer

_MAX_BYTES = 1 << 30
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MAX_ANSWER_TOKENS = 30  # tokens, as in BERT's script
_OVERLAP = 3  # neighboring windows share a third of their tokens
_START, _END, _FIRST = 1, 2, 4  # marks of a labeled token; the last one: it begins an input
_COLUMNS = ("question", "context", "answers")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Question:
    """A question about a text.

    Attributes:
        place: the file and the question, for messages.
        key: the ``id`` in the file, or the number of the row.
        context: the text that is asked about.
        references: the right answers, each with the position of its first character in `context`;
            empty if the text has no answer.
    """

    place: str
    key: str
    question: str
    context: str
    references: tuple[tuple[str, int], ...]

    @property
    def texts(self) -> list[str]:
        return [self.question, self.context]

    @property
    def group_texts(self) -> list[str]:
        return [self.context, self.question]

    @property
    def answers(self) -> list[str]:
        """The texts of the right answers, each once."""
        return list(dict.fromkeys(text for text, _ in self.references))


def read_questions(path: Path) -> Iterator[Question]:
    """Yield the questions of a file.

    Files named ``.json`` have the layout of SQuAD 1.1 and 2.0; JSON lines and Parquet have one
    question a row, in the columns ``question``, ``context``, ``answers`` (``{"text": […],
    "answer_start": […]}``, as on the Hugging Face hub) and perhaps ``id``.

    Raise CorpusError if the file cannot be read, or an answer is not where the file says.
    """
    if path.suffix == ".json":
        yield from _read_squad(path)
        return
    names = list_names(path)
    for name in _COLUMNS:
        if name not in names:
            raise CorpusError(
                f"{path} has no column {name}. Give a .json file of SQuAD, or JSON lines or Parquet"
                f" with the columns {', '.join(_COLUMNS)}."
            )
    columns = {name: name for name in (*_COLUMNS, "id") if name in names}
    for number, row in enumerate(read_columns(path, columns), start=1):
        yield _read_row(row, number)


def _read_row(row: TableRow, number: int) -> Question:
    values = row.values
    try:
        columns = [list[Any](values["answers"][name]) for name in ("text", "answer_start")]
        pairs = list(zip(*columns, strict=True))
    except (KeyError, TypeError, ValueError):
        raise CorpusError(
            f"{row.place}: answers = {show_value(values['answers'])} must hold the lists text and "
            "answer_start, equally long. Correct the line."
        ) from None
    key = str(number if values.get("id") in (None, "") else values["id"])
    return _check(row.place, key, values["question"], values["context"], pairs)


def _read_squad(path: Path) -> Iterator[Question]:
    try:
        content = read_json(path, _MAX_BYTES)
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    key = str(asked["id"])
                    impossible = asked.get("is_impossible", False)
                    answers = [] if impossible else asked.get("answers", [])
                    pairs = [(answer["text"], answer["answer_start"]) for answer in answers]
                    place = f"{path}: question {key}"
                    yield _check(place, key, asked["question"], paragraph["context"], pairs)
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{path} is not JSON in the layout of SQuAD: data, paragraphs with context and qas, "
            f"and these with id, question and answers ({error}). Name JSON lines .jsonl."
        ) from error


def _check(
    place: str, key: str, question: Any, context: Any, pairs: Sequence[tuple[Any, Any]]
) -> Question:
    """Return the question; raise CorpusError unless its answers are parts of its context."""
    for name, value in (("question", question), ("context", context)):
        if not isinstance(value, str) or not value.strip():
            raise CorpusError(f"{place}: {name} = {show_value(value)} must be a text")
    for text, start in pairs:
        is_there = isinstance(text, str) and isinstance(start, int) and text and start >= 0
        if not is_there or context[start : start + len(text)] != text:
            raise CorpusError(
                f"{place}: the answer {show_value(text)} is not at character {show_value(start)} "
                "of the context. Correct answer_start."
            )
    return Question(place, key, question, context, tuple(pairs))


def normalize_answer(text: str) -> str:
    """Return an answer in lower case without punctuation, articles and extra blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_answer(found: str, references: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 of an answer, as the script of SQuAD 2.0 computes them.

    Each is the best over the references; no answer is empty, and has no reference.
    The script of 1.1 gives the same values, except for answers without a letter or digit.
    """
    right = [text for text in references if normalize_answer(text)] or [""]
    exact = max(float(normalize_answer(found) == normalize_answer(text)) for text in right)
    return exact, max(_compare_words(found, text) for text in right)


def _compare_words(found: str, right: str) -> float:
    said, true = (normalize_answer(text).split() for text in (found, right))
    if not said or not true:
        return float(said == true)
    common = (Counter(said) & Counter(true)).total()
    return 2 * common / (len(said) + len(true))


class Spans(LabelTask):
    """The part of a text that answers a question: cross-entropy over the tokens of a window."""

    name = "spans"
    roles = ()
    level = "span"
    metrics = ("f1", "exact_match")
    unused = (*EMBEDDING_SETTINGS, *SPLIT_FLAGS, "class_weights", "pooling", "teacher")
    mistakes_note = "The wrong answers with the highest probability. Look for missing references."

    def find_columns(self, train: Path, given: Any) -> dict[str, Any]:
        return {}

    def read(self, path: Path, files: TaskFiles, skipped: Counter[str] | None) -> list[Row]:
        return list(read_questions(path))

    def find_labels(self, rows: Sequence[Row]) -> Labels:
        """Return the two outputs, with the number of questions that have an answer."""
        answered = sum(bool(_question(row).references) for row in rows)
        if not answered:
            raise CorpusError("no training question has an answer. Add questions that have one.")
        return Labels(("start", "end"), (answered, answered), len(rows) - answered)

    def encode(
        self, rows: Sequence[Row], labels: Labels, tokenizer: Tokenizer, max_length: int
    ) -> Examples:
        """Return windows as inputs; a window without the whole answer is labeled [CLS]."""
        questions = [_question(row) for row in rows]
        pairs = [(one.question, one.context) for one in questions]
        examples = encode_questions(pairs, tokenizer, max_length, labels.num_unanswerable > 0)
        assert examples.windows is not None
        targets = [
            _mark(questions[owner], offsets).tolist() for owner, offsets in examples.windows.parts
        ]
        return replace(examples, targets=targets, rows=rows)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean cross-entropy of the first and the last token of each window.

        The logits [W, 2] and the marks [W] are those of the labeled tokens of all windows.
        """
        starts = [*torch.nonzero(targets & _FIRST)[:, 0].tolist(), len(targets)]
        sizes = [after - start for start, after in pairwise(starts)]
        losses = [
            F.cross_entropy(
                window.T, torch.stack([(marks & mark).argmax() for mark in (_START, _END)])
            )
            for window, marks in zip(logits.split(sizes), targets.split(sizes), strict=True)
        ]
        return torch.stack(losses).mean()

    def collect(self, examples: Examples, logits: Sequence[Logits]) -> list[Answer]:
        assert examples.windows is not None
        return choose_answers(examples.windows, logits)

    def score(
        self, labels: Labels, metrics: Sequence[str], examples: Examples, predictions: Any
    ) -> Scores:
        found = [
            score_answer(str(answer.label), _question(row).answers)
            for answer, row in zip(predictions, examples.rows, strict=True)
        ]
        exact, f1 = np.mean(found, axis=0)
        return {"f1": float(f1), "exact_match": float(exact)}

    def fit_baselines(self, labels: Labels, train: Examples) -> dict[str, Baseline]:
        """Return the answer that there is none, and the words near those of the question."""

        def predict_near(examples: Examples) -> list[Answer]:
            return [Answer(find_near(_question(row)), None, {}) for row in examples.rows]

        return {
            "majority": lambda examples: [Answer("", None, {})] * len(examples.rows),
            "bag of words": predict_near,
        }


def _question(row: Row) -> Question:
    assert isinstance(row, Question)
    return row


def encode_questions(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, max_length: int, may_be_empty: bool
) -> Examples:
    """Return windows of at most `max_length` tokens: the question, at most half, and a part of the
    text of each of N pairs.
    """
    template = InputTemplate.of(tokenizer, 2)
    room = max_length - template.num_added
    inputs, positions = list[ModelInput](), list[list[int]]()
    windows = Windows([text for _, text in pairs], [], may_be_empty)
    for number, (question, context) in enumerate(pairs):
        asked = tokenizer.encode(question, split_special_tokens=False).ids.tolist()[: room // 2]
        encoded = tokenizer.encode_with_offsets(context, split_special_tokens=False)
        ids, size = encoded.ids.tolist(), room - len(asked)
        overlap = size // _OVERLAP
        before = sum(map(len, template.around[:2])) + len(asked)
        for start in range(0, max(1, len(ids) - overlap), size - overlap):
            part = ids[start : start + size]
            inputs.append(template.fill([asked, part], max_length))
            positions.append([0, *range(before, before + len(part))])
            offsets = np.vstack([[[0, 0]], encoded.offsets[start : start + size]])
            windows.parts.append((number, offsets))
    return Examples(inputs, [[] for _ in inputs], positions, windows=windows)


def _mark(question: Question, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the marks [W] of the labeled tokens of a window, the first of which is [CLS]."""
    marks = np.zeros(len(offsets), np.int64)
    first = last = 0
    if question.references:
        text, start = question.references[0]
        first = 1 + int(np.searchsorted(offsets[1:, 1], start, side="right"))
        last = int(np.searchsorted(offsets[1:, 0], start + len(text), side="left"))
        starts_before = len(offsets) < 2 or offsets[1, 0] > start
        ends_after = offsets[-1, 1] < start + len(text)
        if starts_before or ends_after or last < first:
            first = last = 0
    marks[first] |= _START
    marks[last] |= _END
    marks[0] |= _FIRST
    return marks


class _Candidate(NamedTuple):
    """The best answer of a window: its score, its probability, and its characters in the text."""

    score: float
    probability: float
    start: int = 0
    end: int = 0


def choose_answers(windows: Windows, logits: Sequence[Logits]) -> list[Answer]:
    """Return the answer to each question: the best part of all windows of its text.

    If training had questions without an answer, the answer is empty where [CLS] scores higher in
    all windows.
    """
    best: list[list[_Candidate]] = [[] for _ in windows.texts]
    empty: list[list[_Candidate]] = [[] for _ in windows.texts]
    for (owner, offsets), scores in zip(windows.parts, logits, strict=True):
        probability = _share(scores[:, 0], 0) * _share(scores[:, 1], 0)
        empty[owner].append(_Candidate(float(scores[0].sum()), probability))
        if len(scores) > 1:  # else the window has no token of the text
            best[owner].append(_find_best(scores, offsets))
    answers: list[Answer] = []
    for text, found, none in zip(windows.texts, best, empty, strict=True):
        # All windows must agree that there is no answer, so the lowest score counts.
        if not found or (windows.may_be_empty and min(none).score > max(found).score):
            answers.append(Answer("", min(none).probability, {}))
            continue
        _, probability, start, end = max(found)
        label = text[start:end].strip()
        start = text.find(label, start)
        answers.append(Answer(label, probability, {}, (start, start + len(label))))
    return answers


def _find_best(logits: Logits, offsets: NDArray[np.int64]) -> _Candidate:
    """Return the best first and last token of a window."""
    count = len(logits) - 1
    sums = logits[1:, None, 0] + logits[None, 1:, 1]
    lengths = np.arange(count)[None] - np.arange(count)[:, None]
    allowed = (lengths >= 0) & (lengths < _MAX_ANSWER_TOKENS)
    first, last = divmod(int(np.where(allowed, sums, -np.inf).argmax()), count)
    start, end = int(offsets[1 + first, 0]), int(offsets[1 + last, 1])
    probability = _share(logits[:, 0], 1 + first) * _share(logits[:, 1], 1 + last)
    return _Candidate(float(sums[first, last]), probability, start, end)


def _share(logits: NDArray[np.float32], index: int) -> float:
    """Return the softmax of logits at an index."""
    return float(1 / np.exp(logits.astype(np.float64) - logits[index]).sum())


def find_near(question: Question) -> str:
    """Return an answer found by a match of words.

    It is the longest run of words that are not in the question, in the sentence that shares the
    most words with it: a baseline without training, after the sliding window of Richardson et
    al., "MCTest", 2013.
    """
    asked = {word.strip(".,?!").lower() for word in question.question.split()}
    sentences = [sentence.split() for sentence in question.context.split(". ")]

    def overlap(words: Sequence[str]) -> int:
        return len(asked & {word.strip(".,").lower() for word in words})

    runs: list[list[str]] = [[]]
    for word in max(sentences, key=overlap):
        if word.strip(".,").lower() in asked:
            runs.append([])
        else:
            runs[-1].append(word)
    return " ".join(max(runs, key=len))
