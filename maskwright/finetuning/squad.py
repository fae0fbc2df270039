"""Questions about texts in the layouts of SQuAD, and the scores of its official script.

Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016 (1.1), and
"Know What You Don't Know", 2018 (2.0, with questions that have no answer).
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.errors import CorpusError, show_value
from maskwright.files import read_json
from maskwright.finetuning.table_files import TableRow, list_names, read_columns

_MAX_BYTES = 1 << 30
_ARTICLES = re.compile(r"\b(a|an|the)\b")
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
    def answers(self) -> list[str]:
        """The texts of the right answers, each once."""
        return list(dict.fromkeys(text for text, _ in self.references))


def read_questions(path: Path) -> Iterator[Question]:
    """Yield the questions of a file.

    Files named ``.json`` have the layout of SQuAD 1.1 and 2.0; JSON lines and Parquet have one
    question a row, in the columns ``question``, ``context``, ``answers`` (``{"text": […],
    "answer_start": […]}``, as on the Hugging Face hub) and perhaps ``id``.

    Raises:
        CorpusError: the file cannot be read, or an answer is not where the file says.
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
    except ValueError as error:
        remedy = "Give JSON lines as .jsonl."
        raise CorpusError(f"{path} is not JSON, or too large: {error}. {remedy}") from error
    except (KeyError, TypeError) as error:
        raise CorpusError(
            f"{path} is not in the layout of SQuAD: data, paragraphs with context and qas, and "
            "these with id, question and answers. Name JSON lines .jsonl."
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

    Each is the best over the references. The script of 1.1 gives the same values, except for
    answers without a letter or digit.

    Args:
        found: the predicted answer; empty: there is none.
        references: the right answers; empty: there is none.
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
