"""``maskwright predict``: the answers of a fine-tuned model to texts, pairs or sentences."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from maskwright.cli.finetune import ROLES, add_table_flags, read_roles
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import add_arguments, read_sentences
from maskwright.console import say, say_json, tell
from maskwright.corpus.readers.dispatch import recognize_name
from maskwright.errors import InputError
from maskwright.finetuning.conll import has_conll_name, read_words
from maskwright.finetuning.layout import find_roles
from maskwright.finetuning.tables import Column, list_names, parse_columns, read_columns
from maskwright.finetuning.words import split_words
from maskwright.formatting import describe_cut
from maskwright.progress import Pulse
from maskwright.runs.find_model import find_model_folder
from maskwright.runs.run_directory import read_example_files

if TYPE_CHECKING:
    from maskwright.finetuning.predict import Answer, Predictor

_EPILOG = """A single argument that is a file is read: a table (.tsv, .csv, .jsonl, .parquet), or
text, one a line. One answer a line: the label, its probability and the text, separated by tabs; of
several labels each with its probability; of words each word and its tag, with a blank line after
each sentence. --json: with all probabilities. A blank line is answered with an empty row. A table
lies as the one that the model learned from, or has columns sentence1 and sentence2; --columns says
otherwise.

A model that labels words splits the punctuation off the words of plain text. It reads files named
.conll, .iob or .bio (.conll.txt, …) as finetune does, a word a line and a blank line between
sentences, and any file of which --columns word=N says where the words are; tags there are ignored.

examples:
  maskwright predict runs/sst2 "A fine film." "A long one."
  maskwright predict runs/sst2 reviews.txt > answers.tsv
  maskwright predict runs/rte pairs.tsv --columns sentence1=0 sentence2=1 --no-header
  maskwright predict runs/sst2 dev.tsv
  echo "Snails live in Ireland." | maskwright predict runs/ner
  maskwright predict runs/ner wikigold.conll > tagged.tsv
  maskwright predict runs/ner eng.testa --columns word=0
"""
_BLOCK = 512  # texts that are answered together
_TEXTS = ROLES["embedding"]
_WORD = "word"
_TABLES = ("tsv", "csv", "jsonl", "parquet")
Texts = tuple[str, ...]
Input = TypeVar("Input", Texts, list[str])


def build_parser() -> Parser:
    """The command line of ``maskwright predict``."""
    parser = Parser("predict", "Let a fine-tuned model answer.", _EPILOG)
    add_arguments(parser, "texts, or one file")
    parser.add_argument("--table", type=Path, help="texts or pairs in a TSV, CSV, … file")
    columns = "sentence1, sentence2: names or positions from 0; of CoNLL: word [as learned from]"
    add_table_flags(parser, columns)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    columns = read_roles(arguments.columns, (*_TEXTS, _WORD))
    _find_file(arguments, is_conll=_WORD in columns)
    _check(arguments, columns)
    folder = find_model_folder(arguments.folder)
    from maskwright.finetuning.predict import Predictor

    predict = Predictor(folder, arguments.device or "auto")
    if predict.labels_tokens:
        _answer_all(
            _read_sentences(arguments, columns), partial(_show_tags, predict, arguments.json)
        )
    elif arguments.conll is None:
        _answer_all(
            _read_texts(arguments, columns), partial(_show_answers, predict, arguments.json)
        )
    else:
        raise InputError(f"{arguments.conll} holds words, but this model labels texts.")
    if predict.num_cut:
        tell(describe_cut(predict.num_cut, predict.num_texts, predict.longest))
    return 0


def _answer_all(inputs: Iterator[Input], show: Callable[[list[Input]], None]) -> None:
    # On a terminal the answers themselves tell how far it is.
    pulse = Pulse() if sys.stdout.isatty() else Pulse(tell)
    num_answered = 0
    while block := list(islice(inputs, _BLOCK)):
        show(block)
        num_answered += len(block)
        pulse.beat(f"{num_answered:,} texts answered")


def _find_file(arguments: argparse.Namespace, is_conll: bool) -> None:
    """Reads a single argument that is a file as ``--table`` or ``--file``; adds ``conll``.

    Args:
        is_conll: the file has CoNLL columns, whatever its name.
    """
    arguments.conll = None
    if len(arguments.text) == 1 and not (arguments.table or arguments.file):
        path = Path(arguments.text[0])
        kind, _ = recognize_name(path, named=True)
        if _is_file(path):
            setattr(arguments, "table" if kind in _TABLES else "file", path)
            arguments.text = []
        elif (recognize_name(path)[0] or has_conll_name(path)) and " " not in arguments.text[0]:
            raise InputError(
                f"{path} does not exist. Check the path. (A text that looks like one: echo it to "
                "standard input.)"
            )
    path = arguments.table or arguments.file
    if path is not None and (is_conll or has_conll_name(path)):
        arguments.conll = path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text is rarely a path
        return False


def _check(arguments: argparse.Namespace, columns: Mapping[str, str]) -> None:
    """Refuses flags that have no meaning together."""
    if arguments.table is not None and (arguments.file is not None or arguments.text):
        raise InputError("give texts, --file or --table, one of them")
    if arguments.file is not None and arguments.text:
        raise InputError("give texts or --file, not both")
    if arguments.conll is not None:
        if arguments.header is not None or not columns.keys() <= {_WORD}:
            raise InputError(
                f"{arguments.conll} is read as CoNLL: of --columns it takes word=N alone"
            )
    elif _WORD in columns:
        raise InputError(f"--columns word={columns[_WORD]} is of a CoNLL file: give one")
    elif arguments.table is None and (columns or arguments.header is not None):
        raise InputError("--columns and --header are of tables: give one")


def _read_sentences(
    arguments: argparse.Namespace, columns: Mapping[str, str]
) -> Iterator[list[str]]:
    """The words of each sentence, of CoNLL columns or of plain text."""
    if arguments.conll is None:
        for text, *_ in _read_texts(arguments, columns):
            yield [word.text for word in split_words(text)]
        return
    learned = read_example_files(Path(arguments.folder)).get("columns", {})
    yield from read_words(arguments.conll, int(columns.get(_WORD, learned.get(_WORD, 0))))


def _read_texts(arguments: argparse.Namespace, columns: Mapping[str, str]) -> Iterator[Texts]:
    """The texts or pairs that the arguments name, once there is one that is not blank."""
    texts = _read_table(arguments, columns) if arguments.table else _read_lines(arguments)
    blank: list[Texts] = []
    for each in texts:
        blank.append(each)
        if _says_something(each):
            yield from blank
            yield from texts
            return
    path = arguments.table or arguments.file
    raise InputError(f"{path or 'the input'} holds no text, so there is nothing to answer.")


def _says_something(texts: Texts) -> bool:
    return any(text.strip() for text in texts)


def _read_table(arguments: argparse.Namespace, columns: Mapping[str, str]) -> Iterator[Texts]:
    from maskwright.finetuning.examples import read_texts

    places, header = parse_columns(columns), arguments.header
    if not places:
        places, header = _find_columns(Path(arguments.folder), arguments.table, header)
    for row in read_columns(arguments.table, places, header):
        yield tuple(read_texts(row))


def _find_columns(
    run: Path, table: Path, header: bool | None
) -> tuple[dict[str, Column], bool | None]:
    """Columns and header: as the run learned from, if the table has those, or by their roles."""
    files, names = read_example_files(run), list_names(table)
    learned: dict[str, Column] = {
        role: place for role, place in files.get("columns", {}).items() if role in _TEXTS
    }
    if learned and all(isinstance(place, int) or place in names for place in learned.values()):
        return learned, files["has_header"] if header is None else header
    return {**find_roles(names, _TEXTS, {}, str(table))}, header


def _read_lines(arguments: argparse.Namespace) -> Iterator[Texts]:
    return ((sentence.text,) for sentence in read_sentences(arguments))


def _show_answers(predict: "Predictor", as_json: bool, block: list[Texts]) -> None:
    asked = [each[0] if len(each) == 1 else (each[0], each[1]) for each in block]
    wanted = [number for number, each in enumerate(block) if _says_something(each)]
    found = dict(zip(wanted, predict([asked[number] for number in wanted]), strict=True))
    for number, texts in enumerate(block):
        answer = found.get(number)
        if as_json:
            described = {"label": None} if answer is None else _describe(answer)
            say_json({"texts": texts, **described})
            continue
        shown = "\t".join(" ".join(text.split()) for text in texts)
        say("" if answer is None else f"{_show_label(answer)}\t{shown}")


def _show_tags(predict: "Predictor", as_json: bool, sentences: list[list[str]]) -> None:
    for words, answers in zip(sentences, predict.tag(sentences), strict=True):
        pairs = list(zip(words, answers, strict=True))
        if as_json:
            tagged = [{"word": word, **_describe(answer)} for word, answer in pairs]
            say_json(tagged)
        else:
            say("".join(f"{word}\t{answer.label}\n" for word, answer in pairs))


def _show_label(answer: "Answer") -> str:
    if isinstance(answer.label, float):
        return f"{answer.label:.4f}"
    if isinstance(answer.label, list):
        return "|".join(f"{name} {answer.probabilities[name]:.4f}" for name in answer.label)
    return f"{answer.label}\t{answer.score:.4f}"


def _describe(answer: "Answer") -> dict[str, Any]:
    return {"label": answer.label, "score": answer.score, "probabilities": answer.probabilities}
