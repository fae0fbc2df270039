"""``maskwright predict``: the answers of a fine-tuned model to texts, pairs or sentences."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.commands.finetune import ROLES, add_table_flags, read_roles
from maskwright.commands.flags import Parser, tell
from maskwright.commands.model_folder import find_model_folder
from maskwright.commands.run_folder import read_example_files
from maskwright.commands.sentences import add_arguments, read_sentences
from maskwright.corpus.formats import recognise_name
from maskwright.errors import InputError
from maskwright.finetune.conll import is_conll, read_words
from maskwright.finetune.tables import Column, list_names, parse_columns, read_columns
from maskwright.finetune.words import split_words
from maskwright.pulse import Pulse

if TYPE_CHECKING:
    from maskwright.finetune.predict import Answer, Predictor

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
    conll = _find_conll(arguments, columns)
    if conll is None:
        _find_file(arguments)
    if arguments.table is not None and (arguments.file is not None or arguments.text):
        raise InputError("give texts, --file or --table, one of them")
    if arguments.table is None and conll is None and (columns or arguments.header is not None):
        raise InputError("--columns and --header are of tables: give one")
    folder = find_model_folder(arguments.folder)
    from maskwright.finetune.predict import Predictor

    predict = Predictor(folder, arguments.device or "auto")
    if conll is not None:
        if not predict.labels_tokens:
            raise InputError(f"{conll} holds words, but this model labels texts.")
        show, inputs = _show_tags, _read_conll(arguments, conll, columns)
    else:
        texts = _read_table(arguments, columns) if arguments.table else _read_lines(arguments)
        show, inputs = _show_answers, _check_some(texts)
        if predict.labels_tokens:
            show, inputs = _show_tags, ([word.text for word in split_words(text)] for text, *_ in inputs)
    # On a terminal the answers themselves tell how far it is.
    pulse = Pulse() if sys.stdout.isatty() else Pulse(tell)
    num_answered = 0
    while block := list(islice(inputs, _BLOCK)):
        show(predict, block, arguments.json)
        num_answered += len(block)
        pulse.beat(f"{num_answered:,} texts answered")
    if predict.num_cut:
        tell(f"{predict.num_cut:,} texts cut at {predict.longest} tokens")
    return 0


def _find_file(arguments: argparse.Namespace) -> None:
    """Reads a single argument that is a file as ``--table`` or ``--file``."""
    if len(arguments.text) != 1 or arguments.table or arguments.file:
        return
    path = Path(arguments.text[0])
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a text is rarely a path
        return
    if is_file:
        kind, _ = recognise_name(path, named=True)
        name = "table" if kind in _TABLES else "file"
        setattr(arguments, name, path)
        arguments.text = []
    elif recognise_name(path)[0] is not None and " " not in arguments.text[0]:
        raise InputError(
            f"{path} does not exist. Check the path. (A text that looks like one: echo it to "
            "standard input.)"
        )


def _read_table(arguments: argparse.Namespace, columns: dict[str, str]) -> Iterator[Texts]:
    from maskwright.finetune.examples import read_texts

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
    return {role: role for role in _TEXTS if role in names or role == _TEXTS[0]}, header


def _read_lines(arguments: argparse.Namespace) -> Iterator[Texts]:
    return ((sentence.text,) for sentence in read_sentences(arguments) if sentence.text.strip())


def _show_answers(predict: "Predictor", block: list[Texts], as_json: bool) -> None:
    asked = [each[0] if len(each) == 1 else (each[0], each[1]) for each in block]
    for texts, answer in zip(block, predict(asked), strict=True):
        if as_json:
            print(json.dumps({"texts": texts, **_describe(answer)}, ensure_ascii=False))
            continue
        shown = "\t".join(" ".join(text.split()) for text in texts)
        print(f"{_show_label(answer)}\t{shown}")


def _show_tags(predict: "Predictor", sentences: list[list[str]], as_json: bool) -> None:
    for words, answers in zip(sentences, predict.tag(sentences), strict=True):
        pairs = list(zip(words, answers, strict=True))
        if as_json:
            tagged = [{"word": word, **_describe(answer)} for word, answer in pairs]
            print(json.dumps(tagged, ensure_ascii=False))
        else:
            print("".join(f"{word}\t{answer.label}\n" for word, answer in pairs))


def _show_label(answer: "Answer") -> str:
    if isinstance(answer.label, float):
        return f"{answer.label:.4f}"
    if isinstance(answer.label, list):
        return "|".join(f"{name} {answer.probabilities[name]:.4f}" for name in answer.label)
    return f"{answer.label}\t{answer.score:.4f}"


def _describe(answer: "Answer") -> dict[str, Any]:
    return {"label": answer.label, "score": answer.score, "probabilities": answer.probabilities}
