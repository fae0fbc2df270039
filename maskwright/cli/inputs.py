"""Arguments that several commands share: a model and texts, or the text of an evaluation."""

import argparse
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from maskwright.cli.flags import Parser, add_table_flags, read_roles
from maskwright.console import say, say_json, tell
from maskwright.corpus.table_files import naming_source
from maskwright.corpus.text_inputs import PlacedText, find_file, read_file
from maskwright.errors import InputError
from maskwright.runs.find_model import HELP

STANDARD_INPUT = Path("-")
TEXT_COLUMN = (
    "text: name or position of the text's column, or title+body [a usual name, such as text]"
)


def add_arguments(parser: Parser, what: str, columns: str = TEXT_COLUMN) -> None:
    """Add the model, the device, and the source of texts.

    Args:
        what: the texts, for the help.
        columns: the roles of a table's columns, for the help.
    """
    add = parser.add_argument
    add("folder", help=HELP)
    add("text", nargs="*", help=f"{what}, or one file; none, or -: standard input, one a line")
    tables = "texts, one a line, a table (.tsv, .csv, .jsonl, .parquet), sequences (.fasta, "
    tables += ".fastq, .smi), or -; each has a row"
    add("--file", type=Path, help=tables)
    add_table_flags(parser, columns)
    add("--device", help="where to compute, such as cpu or cuda [a GPU if any]")


def add_text_flags(parser: Parser, text: str, row_length: str, fast: str) -> None:
    """Add ``--data``, ``--fast``, ``--seq-length`` and ``--device``.

    Args:
        text, row_length: the defaults, for the help.
        fast: how much of the text ``--fast`` scores.
    """
    data = f"a prepared folder or its URL, or text files [{text}]"
    add = parser.add_argument
    add("--data", nargs="+", default=[], metavar="PATH", help=data)
    add("--fast", action="store_true", help=fast)
    add("--seq-length", type=int, metavar="N", help=f"slots of a row [{row_length}]")
    add("--device", help="where to compute, such as cpu or cuda [a GPU if any]")


def read_sentences(arguments: argparse.Namespace) -> Iterator[PlacedText]:
    """Yield the texts that the arguments name; blank lines are texts too.

    Raise InputError for texts beside a file, and if it cannot be read; CorpusError, which names the
    likely encoding, if a line is not UTF-8.
    """
    file: Path | None = arguments.file
    if file is not None and arguments.text:
        raise InputError("give texts or --file, not both")
    if file is None and arguments.text != ["-"]:
        file = find_file(arguments.text)
    file = None if file == STANDARD_INPUT else file
    columns, header = read_roles(arguments.columns) or {}, arguments.header
    if file is not None:
        yield from read_file(file, columns, header, tell)
    elif columns or header is not None:
        raise InputError("--columns and --header require a table. Give one, or remove them")
    elif arguments.text in ([], ["-"]):
        if isinstance(sys.stdin, io.TextIOWrapper):  # which has the encoding of the locale
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
        with naming_source("standard input"):
            yield from _read_lines(sys.stdin, "standard input")
    else:
        yield from map(PlacedText, arguments.text)


def read_filled_sentences(arguments: argparse.Namespace, missing: str) -> Iterator[PlacedText]:
    """Return the texts as `read_sentences` does; raise an InputError if all are blank."""
    sentences, blank = read_sentences(arguments), list[PlacedText]()
    for sentence in sentences:
        if sentence.text.strip():
            return chain(blank, [sentence], sentences)
        blank.append(sentence)
    raise InputError(missing)


def report_unanswered(
    sentence: PlacedText, reason: object, answer: Mapping[str, object], as_json: bool
) -> bool:
    """Keep the row of a text without an answer; return True if its error was reported.

    Args:
        sentence: the text; nothing is wrong with a blank one.
        reason: the error.
        answer: the fields of an empty answer, for JSON.
        as_json: print a JSON object, not an empty line.
    """
    is_wrong = bool(sentence.text.strip())
    if is_wrong:
        tell(f"InputError: {sentence.place}{reason}")
    if as_json:
        error = str(reason) if is_wrong else None
        say_json({**sentence.fields, **answer, "error": error})
    else:
        say("")
    return is_wrong


def _read_lines(lines: Iterable[str], name: str) -> Iterator[PlacedText]:
    for number, line in enumerate(lines, start=1):
        yield PlacedText(line.rstrip("\n"), f"{name}:{number}: ")
