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
_MAX_FIELD_CHARACTERS = 10_000_000


def read_table(
    lines: Iterable[str], kind: Literal["csv", "tsv"], field: TextField, counts: Counter[str]
) -> Iterator[str]:
    """The texts of one column; rows that cannot be parsed or are too short are counted.

    Raises:
        CorpusError: the header does not have the column.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_CHARACTERS))
    ended = (line + "\n" for line in lines)
    if kind == "csv":
        rows = csv.reader(ended)
    else:
        rows = csv.reader(ended, delimiter="\t", quoting=csv.QUOTE_NONE)
    parsed = _parse_rows(rows, counts)
    header = next(parsed, None)
    if header is None:
        raise UnreadableError("no header", f"{field.source} has no header line.")
    field.check_columns(header)
    column = header.index(field.name)
    for row in parsed:
        if (text := field.pick(row[column] if column < len(row) else None, header)) is not None:
            yield text


def _parse_rows(rows: Iterator[list[str]], counts: Counter[str]) -> Iterator[list[str]]:
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            counts["bad table row"] += 1
            continue
        if row:
            yield row
