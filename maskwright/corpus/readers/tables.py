"""Comma- and tab-separated tables with a header line.

CSV follows RFC 4180 (fields may be quoted and hold line ends); TSV follows IANA's
text/tab-separated-values, where a quotation mark is an ordinary character.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from maskwright.corpus.readers.fields import TextField
from maskwright.corpus.readers.unreadable import UnreadableError

# An unclosed quotation mark swallows at most this much before the row is given up.
MAX_ROW_CHARACTERS = 10_000_000


def read_table(
    lines: Iterable[str], kind: Literal["csv", "tsv"], field: TextField, counts: Counter[str]
) -> Iterator[str]:
    """The texts of one column; rows that cannot be parsed or are too short are counted.

    Raises:
        CorpusError: the header does not have the column.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARACTERS))
    ended = _RowLines(lines)
    if kind == "csv":
        rows = csv.reader(ended)
    else:
        rows = csv.reader(ended, delimiter="\t", quoting=csv.QUOTE_NONE)
    parsed = _parse_rows(rows, ended, counts)
    header = next(parsed, None)
    if header is None:
        raise UnreadableError("no header", f"{field.source} has no header line.")
    field.check_columns(header)
    column = header.index(field.name)
    for row in parsed:
        if (text := field.pick(row[column] if column < len(row) else None, header)) is not None:
            yield text


class _RowLines:
    """Lines for the csv module, which takes as many for one row as its quotation marks ask for.

    `num_characters` were given since it was last set to 0.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.num_characters = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines) + "\n"
        self.num_characters += len(line)
        if self.num_characters > MAX_ROW_CHARACTERS:
            raise csv.Error("row too long")
        return line


def _parse_rows(
    rows: Iterator[list[str]], lines: _RowLines, counts: Counter[str]
) -> Iterator[list[str]]:
    while True:
        lines.num_characters = 0
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            counts["bad table row"] += 1
            continue
        if row:
            yield row
