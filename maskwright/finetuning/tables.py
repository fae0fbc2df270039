"""Columns of labelled tables: TSV, CSV, JSON lines and Parquet, compressed or not.

A column is called by its name or, in a table, by its position from 0. TSV and CSV have a header
line if their columns are called by name, and none if all are called by position, unless it is said,
or unless usual names such as ``text`` and ``label`` are at those positions. What separates columns
is told from the first lines, whatever the ending of the file's name.
Training text is small beside a corpus and each label matters: what cannot be read is an error that
names the line, not a count.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS
from maskwright.corpus.readers.text import decode_text, read_lines
from maskwright.corpus.sources import Source, find_sources
from maskwright.errors import CorpusError
from maskwright.extras import import_extra
from maskwright.finetuning.layout import (
    cut,
    find_delimiter,
    has_usual_names,
    looks_like_header,
    propose_positions,
)

Column = str | int  # a name, or a position from 0
_DELIMITERS = {"tsv": "\t", "csv": ","}
_MARKS = {"\t": "tab", ",": "comma", ";": "semicolon"}
_PEEKED = 100  # lines from which the layout of a table is told


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
            if any column is called by name, or usual names are at the positions.
        skipped: where it is given, a row of a TSV or CSV file that has too few columns is left out
            and counted there, under the name of its file.

    Raises:
        CorpusError: no such file, a damaged one, a column that is not there, a row that is too
            short, or text that is not UTF-8; names the encoding that it is likely in.
    """
    source = _find_one(str(path))
    if source.kind == "parquet":
        return _read_parquet(source, columns)
    if source.kind == "jsonl":
        return _read_json_lines(source, columns)
    if source.kind in ("tsv", "csv"):
        return _read_table(source, columns, has_header, skipped)
    next(_lines(source), None)  # a spreadsheet is refused by name
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
    if source.kind == "jsonl":
        return list(_parse_object(next(_lines(source), ""), f"{source.name}:1"))
    return next(iter(_find_layout(source).rows), [])


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
    texts = decode_text(blocks, source.name, exact=True)
    for number, line in enumerate(read_lines(texts, MAX_RECORD_CHARACTERS, counts), start=1):
        if counts:
            raise CorpusError(f"{source.name}:{number} is too long. Correct or remove the line.")
        yield line


@dataclass(frozen=True)
class _Layout:
    """How a TSV or CSV file is written; `rows` are its first ones."""

    delimiter: str
    quoting: Any
    rows: list[list[str]]


def _find_layout(source: Source) -> _Layout:
    own = _DELIMITERS.get(source.kind, ",")
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_CHARACTERS))
    lines = list(islice(_lines(source), _PEEKED))
    delimiter = find_delimiter(lines, own)
    # GLUE's TSV files hold single quotation marks that mean nothing.
    is_plain = source.kind == "tsv" and delimiter == "\t"
    quoting = csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL
    return _Layout(delimiter, quoting, cut(lines, delimiter))


def _read_table(
    source: Source,
    columns: Mapping[str, Column],
    has_header: bool | None,
    skipped: Counter[str] | None,
) -> Iterator[LabelledRow]:
    layout = _find_layout(source)
    lines = (f"{line}\n" for line in _lines(source))
    reader = csv.reader(lines, delimiter=layout.delimiter, quoting=layout.quoting, strict=True)
    places: dict[str, int] = {}
    width = 0
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
            width = len(row)
            places = _find_places(columns, row, has_header, layout, source)
            if has_header or (has_header is None and _has_names(columns, row, places)):
                continue
        place = f"{source.name}:{reader.line_num}"
        missing = next((role for role, number in places.items() if number >= len(row)), None)
        if missing is None and (skipped is not None or not any(row[width:])):
            yield LabelledRow(place, {role: row[number] for role, number in places.items()})
        elif skipped is not None:
            skipped[source.name] += 1
        else:
            raise _wrong_width(place, len(row), width, missing, columns, layout)


def _has_names(columns: Mapping[str, Column], row: list[str], places: Mapping[str, int]) -> bool:
    """Whether the first row is a header where nobody said so."""
    by_name = any(isinstance(column, str) for column in columns.values())
    return by_name or has_usual_names(row, places)


def _find_places(
    columns: Mapping[str, Column],
    first: list[str],
    has_header: bool | None,
    layout: _Layout,
    source: Source,
) -> dict[str, int]:
    """The position of each column, which is called by name or by position."""
    places: dict[str, int] = {}
    for role, column in columns.items():
        if isinstance(column, int):
            if column >= len(first):
                raise CorpusError(f"{source.name} has {len(first)} columns, but {role} = {column}.")
            places[role] = column
        elif has_header is False:
            raise CorpusError(
                f"{source.name} has no header, so {role} = {column} must be a position, from 0."
            )
        elif column in first:
            places[role] = first.index(column)
        elif not looks_like_header(layout.rows):
            raise CorpusError(
                f"{source.name} seems to have no header: its first line is an example. Name the "
                f"columns by position, as in --columns {propose_positions(layout.rows, [*columns])}"
            )
        else:
            raise _missing(source, role, column, first)
    return places


def _wrong_width(
    place: str,
    found: int,
    width: int,
    missing: str | None,
    columns: Mapping[str, Column],
    layout: _Layout,
) -> CorpusError:
    if missing is not None:
        return CorpusError(
            f"{place} has {found} columns, too few for {missing} = {columns[missing]}. "
            "Correct the line."
        )
    mark = _MARKS[layout.delimiter]
    remedy = f"Put a text that holds a {mark} into quotation marks."
    if layout.quoting == csv.QUOTE_NONE:
        remedy = "Correct the line."
    return CorpusError(f"{place} has {found} columns, but the first line has {width}. {remedy}")


def _missing(source: Source, role: str, column: Column, known: list[str]) -> CorpusError:
    names = ", ".join(known[:20])
    what = f"{column} for {role}" if column != role else f"for {role}"
    return CorpusError(
        f"{source.name} has no column {what}: it has {names}. "
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
