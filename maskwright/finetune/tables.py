"""Columns of labelled tables: TSV, CSV, JSON lines and Parquet, compressed or not.

A column is called by its name or, in a table, by its position from 0. TSV and CSV have a header
line if their columns are called by name, and none if all are called by position, unless it is said.
Training text is small beside a corpus and each label matters: what cannot be read is an error that
names the line, not a count.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.corpus.extras import import_extra
from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.fields import MAX_RECORD_CHARACTERS
from maskwright.corpus.readers.text import decode_text, read_lines
from maskwright.corpus.sources import Source, find_sources
from maskwright.errors import CorpusError

Column = str | int  # a name, or a position from 0
_DELIMITERS = {"tsv": "\t", "csv": ","}


@dataclass(frozen=True)
class LabelledRow:
    """One row of a table.

    Attributes:
        place: file and line or row, for messages.
        values: by what the column is for; text in TSV and CSV, of any kind in the others.
    """

    place: str
    values: Mapping[str, Any]


def parse_columns(given: Mapping[str, str]) -> dict[str, Column]:
    """Columns as a command line names them: digits are positions."""
    return {role: int(name) if name.isdecimal() else name for role, name in given.items()}


def read_columns(
    path: Path | str,
    columns: Mapping[str, Column],
    has_header: bool | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[LabelledRow]:
    """The rows of a file, with the columns that are asked for.

    Args:
        columns: what each is for -> its name or position.
        has_header: whether the first line of a TSV or CSV file names its columns; None: it does
            if any column is called by name.
        skipped: where it is given, a row of a TSV or CSV file that has too few columns is left out
            and counted there, under the name of its file.

    Raises:
        CorpusError: no such file, a damaged one, a column that is not there, a row that is too
            short or is not UTF-8.
    """
    source = _find_one(str(path))
    if source.kind == "parquet":
        return _read_parquet(source, columns)
    if source.kind == "jsonl":
        return _read_json_lines(source, columns)
    if source.kind in ("tsv", "csv"):
        by_name = any(isinstance(column, str) for column in columns.values())
        has_header = by_name if has_header is None else has_header
        return _read_table(source, columns, has_header, skipped)
    raise CorpusError(
        f"{path} is no table: .tsv, .csv, .jsonl and .parquet are read. Rename or convert it."
    )


def list_names(path: Path | str) -> list[str]:
    """The names of a table's columns; those of the first row, where it has no names.

    Raises:
        CorpusError: as `read_columns`.
    """
    source = _find_one(str(path))
    if source.kind == "parquet":
        return _open_parquet(source)[1]
    first = next(_lines(source), "")
    if source.kind == "jsonl":
        return list(_parse_object(first, f"{source.name}:1"))
    return next(csv.reader([first], delimiter=_DELIMITERS.get(source.kind, ",")), [])


def open_lines(path: Path | str) -> tuple[str, Iterator[str]]:
    """The name of a text file in messages, and its lines.

    Raises:
        CorpusError: no such file; while it is read, a damaged one or a line that is not UTF-8.
    """
    source = _find_one(str(path))
    return source.name, _lines(source)


def _find_one(path: str) -> Source:
    sources = find_sources([path])
    if len(sources) != 1 or sources[0].path is None:
        raise CorpusError(f"{path} must name one file.")
    return sources[0]


def _lines(source: Source) -> Iterator[str]:
    counts: Counter[str] = Counter()
    blocks = read_blocks(source.path, source.compression, source.name)
    for number, line in enumerate(
        read_lines(decode_text(blocks, source.name), MAX_RECORD_CHARACTERS, counts), start=1
    ):
        if counts:
            raise CorpusError(f"{source.name}:{number} is too long. Correct or remove the line.")
        if not line.isascii() and any("\udc80" <= character <= "\udcff" for character in line):
            raise CorpusError(f"{source.name}:{number} is not UTF-8. Convert the file.")
        yield line


def _read_table(
    source: Source,
    columns: Mapping[str, Column],
    has_header: bool,
    skipped: Counter[str] | None,
) -> Iterator[LabelledRow]:
    quoting = csv.QUOTE_NONE if source.kind == "tsv" else csv.QUOTE_MINIMAL
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_CHARACTERS))
    delimiter = _DELIMITERS[source.kind]
    lines = (f"{line}\n" for line in _lines(source))
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    header: list[str] | None = None
    places: dict[str, int] = {}
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CorpusError(f"{source.name}:{reader.line_num} cannot be read: {error}.") from None
        if not row:
            continue
        if not places:
            header = row if has_header else None
            width = len(row)
            places = {r: _find_place(c, header, width, source, r) for r, c in columns.items()}
            if has_header:
                continue
        place = f"{source.name}:{reader.line_num}"
        missing = next((role for role, number in places.items() if number >= len(row)), None)
        if missing is None:
            yield LabelledRow(place, {role: row[number] for role, number in places.items()})
        elif skipped is not None:
            skipped[source.name] += 1
        else:
            raise CorpusError(
                f"{place} has {len(row)} columns, too few for {missing} = {columns[missing]}. "
                "Correct the line."
            )


def _find_place(
    column: Column, header: list[str] | None, width: int, source: Source, role: str
) -> int:
    if isinstance(column, int):
        if column < width:
            return column
        raise CorpusError(f"{source.name} has {width} columns, but {role} = {column}.")
    if header is None:
        raise CorpusError(
            f"{source.name} has no header, so {role} = {column} must be a position, from 0."
        )
    if column not in header:
        raise _missing(source, role, column, header)
    return header.index(column)


def _missing(source: Source, role: str, column: Column, known: list[str]) -> CorpusError:
    names = ", ".join(known[:20])
    return CorpusError(
        f"{source.name} has no column {column} for {role}: it has {names}. "
        f"Say which it is: --columns {role}=NAME, or its position, from 0."
    )


def _unreadable(source: Source, error: Exception) -> CorpusError:
    return CorpusError(f"{source.name} cannot be read: {str(error).rstrip('.')}.")


def _read_json_lines(source: Source, columns: Mapping[str, Column]) -> Iterator[LabelledRow]:
    for number, line in enumerate(_lines(source), start=1):
        if not line.strip():
            continue
        place = f"{source.name}:{number}"
        record = _parse_object(line, place)
        values: dict[str, Any] = {}
        for role, column in columns.items():
            if column not in record:
                raise CorpusError(
                    f"{place} has no {column} for {role}: it has {', '.join(list(record)[:20])}. "
                    f"Say which it is: --columns {role}=NAME."
                )
            values[role] = record[column]
        yield LabelledRow(place, values)


def _parse_object(line: str, place: str) -> dict[str, Any]:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise CorpusError(f"{place} is not a JSON object. Correct or remove the line.")
    return record


def _open_parquet(source: Source) -> tuple[Any, list[str]]:
    """The file, and the names of its columns."""
    parquet: Any = import_extra("pyarrow.parquet", "parquet", source.name)
    try:
        table = parquet.ParquetFile(source.path)
        return table, [str(name) for name in table.schema_arrow.names]
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None


def _read_parquet(source: Source, columns: Mapping[str, Column]) -> Iterator[LabelledRow]:
    table, known = _open_parquet(source)
    names: dict[str, str] = {}
    for role, column in columns.items():
        if isinstance(column, int) and column < len(known):
            column = known[column]
        if not isinstance(column, str) or column not in known:
            raise _missing(source, role, column, known)
        names[role] = column
    try:
        read = table.read(columns=sorted(set(names.values()))).to_pylist()
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None
    for number, record in enumerate(read, start=1):
        values = {role: record[name] for role, name in names.items()}
        yield LabelledRow(f"{source.name}, row {number}", values)
