"""Predictions of a fine-tuned model for texts, pairs of texts, and tagged words. K labels."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, tee
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.console import Pulse, tell
from maskwright.corpus.column_roles import (
    SENTENCE,
    TEXT_ROLES,
    Column,
    find_roles,
    looks_like_header,
    name_roles,
)
from maskwright.corpus.table_files import (
    find_joined,
    is_named_sequences,
    is_named_table,
    list_names,
    list_texts,
    parse_columns,
    read_columns,
    read_sequence_file,
    read_text_lines,
)
from maskwright.corpus.text_inputs import find_file, has_conll_name
from maskwright.errors import InputError
from maskwright.finetuning.beside import Beside
from maskwright.finetuning.conll import (
    OUTSIDE,
    Sentence,
    find_entities,
    marks_entities,
    split_words,
)
from maskwright.finetuning.examples import Examples, encode_texts, encode_words
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.span_task import choose_answers, encode_questions, read_questions
from maskwright.finetuning.task import Answer, Labels, Tell, make_answers
from maskwright.finetuning.token_tables import find_words, read_given_words
from maskwright.formatting import describe_cut
from maskwright.inference.text_model import check_finite, show_text
from maskwright.model_folder.classifier_folder import open_classifier
from maskwright.model_folder.folder import find_model
from maskwright.runs.find_model import find_model_folder
from maskwright.runs.run_directory import read_example_files
from maskwright.tokenizer.words import measure_unspaced
from maskwright.train.config import Precision
from maskwright.train.device import choose_device

_BLOCK = 512  # inputs per call of the model's predictor
_WORD = "word"  # the role of CoNLL files
Texts = tuple[str, ...]


class Predictor:
    """A fine-tuned model, loaded from the folder that ``maskwright finetune`` wrote::

        predict = Predictor("runs/sst2/model")
        predict(["a fine film", "a long one"])[0].label

    Args:
        folder: the folder of a classifier, or the run directory of its fine-tuning.
        device: cpu, cuda, …; ``auto``: a GPU if there is one.
        precision: the precision of matrix products.

    Raises:
        ModelFolderError: `folder` is not a classifier's folder.
        ConfigError: there is no such device.
    """

    def __init__(
        self, folder: Path | str, device: str = "auto", precision: Precision = "fp32"
    ) -> None:
        self.loaded = open_classifier(folder)
        self.precision: Precision = precision
        chosen = choose_device(device, field="device")
        self.loaded.model.to(chosen)
        self.beside = Beside.read(find_model(folder), chosen)
        level = self.loaded.model.head_config.level
        self.labels_tokens, self.finds_spans = level == "token", level == "span"
        self.longest = self.loaded.max_length
        self.num_texts = self.num_cut = 0
        self._has_warned = False

    def __call__(self, texts: str | Sequence[str | tuple[str, str]]) -> list[Answer]:
        """Return the answer for each text, for each pair, or for each question and its text.

        Raise InputError if the model labels words (use `tag`) or was trained on pairs and not on
        texts, or the reverse.
        """
        if self.labels_tokens:
            raise InputError("this model labels words, not texts. Use Predictor.tag.")
        listed = [texts] if isinstance(texts, str) else texts
        each = [(one,) if isinstance(one, str) else tuple(one) for one in listed]
        if not each:
            return []
        needed = 2 if self.finds_spans else self.loaded.num_texts
        sizes = {*map(len, each)}
        if len(sizes) > 1 or needed not in (None, *sizes):
            rule = f"texts per example must be {needed or 'the same number in all'}, as in training"
            remedy = "In a table, name the columns sentence1, and sentence2 of pairs."
            raise InputError(f"{rule}, but are {' and '.join(map(str, sizes))}. {remedy}")
        tokenizer, may_be_empty = self.loaded.tokenizer, self.loaded.may_be_empty
        if self.finds_spans:
            pairs = [(pair[0], pair[-1]) for pair in each]
            examples = encode_questions(pairs, tokenizer, self.longest, may_be_empty)
            assert examples.windows is not None
            return choose_answers(examples.windows, self._compute(examples))
        inputs, num_cut = encode_texts(each, tokenizer, self.longest)
        self.num_texts, self.num_cut = self.num_texts + len(each), self.num_cut + num_cut
        logits = np.stack(self._compute(Examples(inputs, np.zeros(len(inputs)))))
        return self._answer(logits if self.beside is None else self.beside(logits, each))

    def split(self, text: str) -> Sentence:
        """Return the words of a text, split as those of the training data were.

        Text in a script without blanks whose words were given in training needs blanks between
        its words, which nothing else knows; a warning says so once.
        """
        rule = self.loaded.words
        words = split_words(text, rule.splitting)
        long = (word.text for word in words if measure_unspaced(word.text) > rule.longest)
        if rule.splitting == "blanks" and not self._has_warned and (word := next(long, None)):
            self._has_warned = True
            tell(
                f"warning: {show_text(word)} is longer than every word of training "
                f"({rule.longest} characters). Separate words by blanks, as there."
            )
        return Sentence(text, words)

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[Answer]]:
        """Return the answer for each word of each sentence; a dropped word has no score.

        Raise InputError if the model labels texts.
        """
        if not self.labels_tokens:
            raise InputError("this model labels texts, not words. Call the Predictor itself.")
        examples, owners = encode_words(sentences, self.loaded.tokenizer, self.longest)
        unseen = Answer(OUTSIDE if OUTSIDE in self.loaded.labels else "", None, {})
        answers = [[unseen] * len(words) for words in sentences]
        for (sentence, words), logits in zip(owners, self._compute(examples), strict=True):
            for word, answer in zip(words, self._answer(logits), strict=True):
                answers[sentence][word] = answer
        return answers

    def _compute(self, examples: Examples) -> list[NDArray[np.float32]]:
        pad_id = self.loaded.tokenizer.pad_id
        found = compute_logits(self.loaded.model, examples, pad_id, self.precision)
        for logits in found:
            check_finite(torch.as_tensor(logits), "logits")
        return found

    def _answer(self, logits: NDArray[np.float32]) -> list[Answer]:
        return make_answers(self.loaded.problem, Labels(self.loaded.labels), logits)


class FoundEntity(NamedTuple):
    """An entity: its kind, the mean probability of its words, its text and its characters."""

    label: str
    score: float
    text: str
    start: int
    end: int


def list_entities(sentence: Sentence, answers: Sequence[Answer]) -> list[FoundEntity]:
    """Return the entities of a sentence, with their characters in its text."""
    tags = [OUTSIDE if answer.score is None else str(answer.label) for answer in answers]
    found: list[FoundEntity] = []
    for kind, first, stop in find_entities(tags):
        start, end = sentence.spans[first][0], sentence.spans[stop - 1][1]
        score = fmean(answer.score or 0.0 for answer in answers[first:stop])
        found.append(FoundEntity(kind, score, sentence.text[start:end], start, end))
    return found


@dataclass(frozen=True)
class AnsweredText:
    """An input and its answer.

    Attributes:
        texts: one text, or the two of a pair; if the model labels words, the words of a sentence.
        answer: None for a blank text; if the model labels words, an answer for each word.
        sentence: if the model labels words, the words with their text and their characters.
        id: the id of a record of a FASTA, FASTQ or SMILES file.
    """

    texts: Texts
    answer: Answer | list[Answer] | None
    sentence: Sentence | None = None
    id: str | None = None

    @property
    def entities(self) -> list[FoundEntity]:
        """The entities of the text, with their characters in it; empty for a model of texts."""
        if self.sentence is None or not isinstance(self.answer, list):
            return []
        return list_entities(self.sentence, self.answer)


def predict(
    folder: str | Path,
    text: str | Path | Iterable[str] = (),
    *,
    file: str | Path | None = None,
    table: str | Path | None = None,
    columns: Mapping[str, Column] | None = None,
    header: bool | None = None,
    entities: bool = False,
    device: str | None = None,
    report: Tell = tell,
) -> Iterator[AnsweredText]:
    """Predict the labels of texts, pairs or sentences, as ``maskwright predict``::

        for prediction in predict("runs/sst2", "reviews.txt"):
            print(prediction.answer.label, *prediction.texts)

    Args:
        folder: a run directory of fine-tuning, the folder of a classifier, or ``hf:NAME``.
        text: a text, several texts, or the path of a file: a table, CoNLL columns, or text lines.
        file: a file with one text per line, a table, or sequences.
        table: a TSV, CSV, JSON lines or Parquet file of texts or pairs.
        columns: names or positions by role: sentence1, sentence2; of CoNLL: word [as in training].
        header: True if the first row of the table holds names; None: it is inferred.
        entities: True if entities are wanted (`AnsweredText.entities`): other models are refused.
        device: the device, such as ``cpu`` or ``cuda``; default: a GPU if there is one.
        report: receives progress lines, and the number of texts that were cut.

    Returns:
        An iterator that reads inputs and predicts as it is consumed.

    Raises:
        MaskwrightError: an argument is wrong, or, during iteration, a line cannot be read.
    """
    texts = [str(text)] if isinstance(text, str | Path) else text
    named = name_roles(columns or {}, (*TEXT_ROLES, _WORD, SENTENCE), "predict")
    if sum((texts != (), file is not None, table is not None)) > 1:
        raise InputError("texts, --file and --table cannot be combined. Give one of them")
    given = file if table is None else table
    path = find_file(texts) if given is None else Path(given)
    predictor = Predictor(find_model_folder(folder), device or "auto")
    kind = _find_kind(path, table is not None, named, header, predictor.labels_tokens)
    if entities and not (predictor.labels_tokens and marks_entities(predictor.loaded.labels)):
        rule = f"its labels, such as {predictor.loaded.labels[0]}, are not of entities"
        raise InputError(f"--entities has no effect with {folder}: {rule}. Remove it.")
    trained: Mapping[str, Any] = read_example_files(Path(folder))
    if kind == "words":
        if not predictor.labels_tokens:
            raise InputError(f"{path} holds words, but this model labels texts. Give texts.")
        assert path is not None
        return _answer_all(predictor, read_given_words(path, named, trained, header), report)
    if path is None:
        found: Iterator[Texts] = ((one,) for one in texts)
    elif kind == "sequences":
        return _answer_sequences(predictor, path, report)
    elif kind == "lines":
        found = ((line,) for line in read_text_lines(path))
    else:
        found = _read_table(path, named, header, trained, predictor.finds_spans)
    return _answer_all(predictor, _check_first(found, path, kind, trained), report)


def _answer_all(
    predictor: Predictor, inputs: Iterator[Texts | Sentence], report: Tell
) -> Iterator[AnsweredText]:
    pulse, num_answered = Pulse(report), 0
    if predictor.labels_tokens:
        inputs = (one if isinstance(one, Sentence) else predictor.split(one[0]) for one in inputs)
    while block := list(islice(inputs, _BLOCK)):
        yield from _answer_block(predictor, block)
        num_answered += len(block)
        pulse.beat(f"{num_answered:,} texts answered")
    if predictor.num_cut:
        report(describe_cut(predictor.num_cut, predictor.num_texts, predictor.longest))


def _answer_sequences(predictor: Predictor, path: Path, report: Tell) -> Iterator[AnsweredText]:
    """Yield the answers to the records of a file of sequences, with their ids."""
    records, named = tee(read_sequence_file(path, report))
    answered = _answer_all(predictor, ((one.text,) for one in records), report)
    pairs = zip(answered, named, strict=True)
    return (replace(one, id=record.id) for one, record in pairs)


def _answer_block(
    predictor: Predictor, block: Sequence[Texts | Sentence]
) -> Iterator[AnsweredText]:
    if predictor.labels_tokens:
        for sentence, answers in zip(block, predictor.tag(block), strict=True):
            assert isinstance(sentence, Sentence)
            yield AnsweredText(tuple(sentence), answers, sentence)
        return
    block = [tuple(texts) for texts in block]
    asked = [each[0] if len(each) == 1 else (each[0], each[1]) for each in block if _has_text(each)]
    found = iter(predictor(asked))
    for texts in block:
        yield AnsweredText(texts, next(found) if _has_text(texts) else None)


def _has_text(texts: Texts) -> bool:
    return any(text.strip() for text in texts)


def _find_kind(
    path: Path | None,
    is_table: bool,
    columns: Mapping[str, Column],
    header: bool | None,
    has_words: bool,
) -> Literal["words", "table", "sequences", "lines"]:
    """Return how the input is read; raise InputError for columns or a header that it lacks.

    `has_words` is True if the model labels words, so that a table may be one of words.
    """
    is_words = has_words and path is not None and find_words(path) is not None
    if path is not None and (_WORD in columns or has_conll_name(path) or is_words):
        is_table = is_words or not str(columns.get(_WORD, 0)).lstrip("-").isdecimal()
        if not columns.keys() <= {_WORD, SENTENCE} or (header is not None and not is_table):
            raise InputError(f"{path} is read as CoNLL, which takes only --columns word=…")
        return "words"
    if _WORD in columns:
        raise InputError(f"--columns word={columns[_WORD]} requires a file of words. Give one.")
    if path is not None and (is_table or is_named_table(path)):
        return "table"
    if columns or header is not None:
        raise InputError("--columns and --header require a table. Give one, or remove them")
    if path is not None and is_named_sequences(path):
        return "sequences"
    return "lines"


def _read_table(
    path: Path,
    given: Mapping[str, Column],
    header: bool | None,
    trained: Mapping[str, Any],
    finds_spans: bool,
) -> Iterator[Texts]:
    """Yield texts from given columns, else those of training if there are such, else usual ones."""
    if finds_spans and path.suffix == ".json":
        return (tuple(one.texts) for one in read_questions(path))
    columns = parse_columns(given)
    if not columns:
        names, used = list_names(path), trained.get("columns", {})
        known = {role: used[role] for role in TEXT_ROLES if role in used}
        if finds_spans and {"question", "context"} <= {*names}:
            columns = {"sentence1": "question", "sentence2": "context"}
        elif has_columns(path, known):
            columns, header = known, trained["has_header"] if header is None else header
        else:
            columns = {**find_roles(names, TEXT_ROLES, {}, path)}
    return (tuple(list_texts(row)) for row in read_columns(path, columns, header))


def _check_first(
    texts: Iterator[Texts], path: Path | None, kind: str, trained: Mapping[str, Any]
) -> Iterator[Texts]:
    """Return all texts; raise InputError if none has words, or if the first is a header."""
    blank: list[Texts] = []
    for each in texts:
        blank.append(each)
        if _has_text(each):
            cells, used = re.split(r"[,;\t]", each[0]), trained.get("columns", {})
            named = {used[role] for role in TEXT_ROLES if role in used}
            is_header = len(cells) > 1 and looks_like_header([cells])
            if kind == "lines" and is_header and named and named <= {*cells}:
                raise InputError(f"{show_text(each[0])} begins a table. Use --table FILE.")
            return chain(blank, texts)
    raise InputError(f"{path or 'the input'} holds no text. Give at least one.")


def has_columns(path: Path, columns: Mapping[str, Column]) -> bool:
    """Return True if a table has these columns; positions are of one without a header."""
    names = list_names(path)
    if all(isinstance(column, str) for column in columns.values()):
        joined = find_joined(columns, names)
        parts = {part for found in joined.values() for part in found}
        parts |= {str(column) for role, column in columns.items() if role not in joined}
        return bool(parts) and parts <= {*names}
    return not {".jsonl", ".parquet"} & {*path.suffixes} and not looks_like_header([names])
