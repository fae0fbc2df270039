"""Files of texts that a model is applied to: a text a line, or a row of a table.

Each line and each row is a text, blank or not, so that answers lie beside texts.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from maskwright.corpus.readers.text import UTF_8, not_decodable
from maskwright.corpus.sources import recognize_name
from maskwright.errors import InputError
from maskwright.finetuning.column_roles import TEXT_ROLES
from maskwright.finetuning.table_files import TableRow, open_lines

_TABLES = ("tsv", "csv", "jsonl", "parquet")  # kinds of files


def is_named_table(path: Path) -> bool:
    """Return True if a file is a table by its name."""
    return recognize_name(path, named=True)[0] in _TABLES


def list_texts(row: TableRow) -> list[str]:
    """Return the one or two texts of a row; a missing one is blank."""
    found = {role: row.values[role] for role in TEXT_ROLES if role in row.values}
    filled = {role: "" if text is None else text for role, text in found.items()}
    return TableRow(row.place, filled).texts


def read_text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, compressed or not, or of a pipe; none if it is empty.

    Raises:
        InputError: it cannot be read.
        CorpusError: it is damaged or not UTF-8.
    """
    with naming_source(str(path)):
        if not path.is_file():  # a pipe, or an error
            with path.open(encoding="utf-8-sig") as file:
                yield from (line.rstrip("\n") for line in file)
        elif path.stat().st_size:
            yield from open_lines(path)[1]


@contextmanager
def naming_source(name: str) -> Generator[None]:
    """Convert errors of reading text to errors that name its source."""
    try:
        yield
    except UnicodeDecodeError as error:
        reason = f"byte {error.object[error.start]:#x} cannot be decoded"
        raise not_decodable(error.object, name, UTF_8, reason) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}.") from None
