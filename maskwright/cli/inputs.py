"""Arguments that several commands share: a model and texts, or the text of an evaluation."""

import argparse
import io
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from maskwright.cli.flags import Parser
from maskwright.corpus.readers.dispatch import recognize_name
from maskwright.corpus.readers.text import UTF_8, not_decodable
from maskwright.errors import InputError
from maskwright.finetuning.table_files import FIRST, TABLES, find_roles, list_names, read_columns
from maskwright.runs.find_model import HELP


@dataclass(frozen=True)
class Sentence:
    """A text, and its origin as the beginning of an error: ``sentences.txt:7: ``."""

    text: str
    place: str = ""


def add_arguments(parser: Parser, what: str) -> None:
    """Add the model, the device, and the source of texts; `what` describes them in the help."""
    parser.add_argument("folder", help=HELP)
    parser.add_argument("text", nargs="*", help=f"{what}; none, or -: standard input, one a line")
    parser.add_argument(
        "--file", type=Path, help="texts, one a line, or a table with a text column"
    )
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")


def add_text_flags(parser: Parser, text: str, row_length: str, fast: str) -> None:
    """Add ``--data``, ``--fast``, ``--seq-length`` and ``--device``.

    Args:
        text, row_length: the defaults, for the help.
        fast: how much of the text ``--fast`` scores.
    """
    data = f"a prepared folder or its URL, or text files [{text}]"
    parser.add_argument("--data", nargs="+", default=[], metavar="PATH", help=data)
    parser.add_argument("--fast", action="store_true", help=fast)
    parser.add_argument(
        "--seq-length", type=int, metavar="N", help=f"slots of a row [{row_length}]"
    )
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")


def read_sentences(arguments: argparse.Namespace) -> Iterator[Sentence]:
    """Yield the texts that the arguments name; blank lines are texts too.

    Raises:
        InputError: texts and a file, or a file that cannot be read.
        CorpusError: lines that are not UTF-8; names the likely encoding.
    """
    if arguments.file is not None and arguments.text:
        raise InputError("give texts or --file, not both")
    if arguments.file is not None and recognize_name(arguments.file, named=True)[0] in TABLES:
        yield from _read_table(arguments.file)
    elif arguments.file is not None:
        name = str(arguments.file)
        with _naming_source(name), arguments.file.open(encoding="utf-8-sig") as file:
            yield from _read_lines(file, name)
    elif arguments.text in ([], ["-"]):
        if isinstance(sys.stdin, io.TextIOWrapper):  # which has the encoding of the locale
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
        with _naming_source("standard input"):
            yield from _read_lines(sys.stdin, "standard input")
    else:
        yield from map(Sentence, arguments.text)


def read_filled_sentences(arguments: argparse.Namespace, missing: str) -> Iterator[Sentence]:
    """Return the texts that are not blank; raise an InputError if there is none."""
    sentences = (sentence for sentence in read_sentences(arguments) if sentence.text.strip())
    first = next(sentences, None)
    if first is None:
        raise InputError(missing)
    return chain([first], sentences)


def _read_table(path: Path) -> Iterator[Sentence]:
    """Yield the texts of the column with a usual name; a missing text is blank."""
    if not path.is_file():
        raise InputError(f"{path} cannot be read: it is no file. Check the path.")
    columns = find_roles(list_names(path), (FIRST,), {}, path)
    for row in read_columns(path, columns):
        text = row.values[FIRST]
        yield Sentence("" if text is None else row.texts[0], f"{row.place}: ")


def _read_lines(lines: Iterable[str], name: str) -> Iterator[Sentence]:
    for number, line in enumerate(lines, start=1):
        yield Sentence(line.rstrip("\n"), f"{name}:{number}: ")


@contextmanager
def _naming_source(name: str) -> Generator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        reason = f"byte {error.object[error.start]:#x} cannot be decoded"
        raise not_decodable(error.object, name, UTF_8, reason) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}.") from None
