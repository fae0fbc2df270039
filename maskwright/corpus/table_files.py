"""Tables of examples: TSV, CSV, JSON lines and Parquet, compressed or not.

A column is given by its name or, in TSV and CSV files, by its position from 0. The separator and
the header of these files are inferred from their first lines, whatever the file extension. Columns
with usual names (``text``, ``review``, ``category``) need not be given; two columns that may have
the same role are an error.

A line that cannot be read is not skipped: labeled data is small, so the error names the line. Of
texts that a model is applied to, each line and each row is one, so that answers lie beside texts.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from maskwright.corpus.column_roles import (
    GROUP,
    LABEL,
    TEXT_ROLES,
    USUAL,
    Column,
    looks_like_header,
    normalize_name,
)
from maskwright.corpus.encoding import UTF_8, not_decodable
from maskwright.corpus.readers.columns import opening_parquet, read_batches
from maskwright.corpus.readers.records import find_declared, parse_rows, read_exact_lines
from maskwright.corpus.readers.sequences import PARSERS, SequenceRecord, read_records
from maskwright.corpus.sources import Source, find_sources, recognize_name
from maskwright.errors import CorpusError, InputError, show_value
from maskwright.files import JsonObject, parse_object

GROUP_MARK = "\x1d"  # before a group among texts
TABLES = ("tsv", "csv", "jsonl", "parquet")  # kinds of files
_DELIMITERS = {"tsv": "\t", "csv": ","}
_MAX_NUMBER = 1e18  # squares fit in float32
_MOST = 0.8  # of the lines that another delimiter separates
_PEEKED = 100  # lines from which the layout of a table is inferred
# Zero-width space, mark of byte order, word joiner, soft hyphen, marks of direction.
_INVISIBLE: dict[int, None] = dict.fromkeys((0x200B, 0xFEFF, 0x2060, 0xAD, 0x200E, 0x200F))


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    Attributes:
        place: the file and the line or row, for messages.
        values: the value of each role: a string in TSV and CSV files, else any JSON value.
    """

    place: str
    values: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The one or two texts; raises as `texts_of` does."""
        return self.texts_of(TEXT_ROLES)

    @property
    def group_texts(self) -> list[str]:
        # The first one decides if shared texts connect nearly all examples.
        group = self.values.get(GROUP)
        return [*([] if group is None else [f"{GROUP_MARK}{group}"]), *self.texts]

    def texts_of(self, roles: Sequence[str]) -> list[str]:
        """Return the texts of the roles that the row has; raise CorpusError if one is no string."""
        texts = [self.values[role] for role in roles if role in self.values]
        for text in texts:
            if not isinstance(text, str):
                raise CorpusError(f"{self.place}: {text!r} is not a string. Correct the line.")
        return texts

    def number(self, role: str) -> float:
        """Return a value as a number; raise CorpusError if it is not one, or too large."""
        value, number = self.values[role], math.nan
        if not (isinstance(value, str) and "_" in value):  # Python reads 1_5 as 15
            with suppress(TypeError, ValueError, OverflowError):
                number = float(value)
        if not abs(number) <= _MAX_NUMBER:
            shown = show_value(value)
            remedy = "Write a decimal point." if "," in shown else "Correct the line."
            rule = f"is not a number within ±{_MAX_NUMBER:g}"
            raise CorpusError(f"{self.place}: {role} = {shown} {rule}. {remedy}")
        return number


def parse_columns(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return columns with positions that are given as digits converted to integers."""
    return {
        role: int(name) if isinstance(name, str) and name.isdecimal() else name
        for role, name in columns.items()
    }


def read_columns(
    path: Path | str,
    columns: Mapping[str, Column],
    has_header: bool | None = None,
    skipped: Counter[str] | None = None,
    kind: str | None = None,
) -> Iterator[TableRow]:
    """Yield the rows of a file, with the given columns.

    Args:
        columns: the name or position of each column by role; ``title+body`` are the texts of two
            columns, joined by a blank.
        has_header: True if the first line of a TSV or CSV file names its columns; None infers it:
            there is one if a column is given by name, or usual names are at the positions.
        skipped: receives the number of skipped rows by file name (rows of TSV and CSV files with
            too few columns); None makes such a row an error.
        kind: the kind of the table; None: that of the file's name.

    Raises:
        CorpusError: the file is missing, damaged or not UTF-8 (the message names its likely
            encoding), a column is missing, or a row is too short.
    """
    source = find_one(path, kind)
    if joined := find_joined(columns, list_names(path, kind)):
        parts = {f"{role}+{part}": part for role, found in joined.items() for part in found}
        others = {role: column for role, column in columns.items() if role not in joined}
        rows = read_columns(path, {**others, **parse_columns(parts)}, has_header, skipped, kind)
        return (_join(row, joined) for row in rows)
    if source.kind == "parquet":
        return _read_parquet(source, columns)
    if source.kind == "jsonl":
        return _read_json_rows(source, columns)
    if source.kind in ("tsv", "csv"):
        return _read_table(source, columns, has_header, skipped)
    next(read_exact_lines(source), None)  # a spreadsheet is refused by name
    raise CorpusError(
        f"{path} is not a table: supported are .tsv, .csv, .jsonl and .parquet. Rename or convert "
        "it."
    )


def find_joined(columns: Mapping[str, Column], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the parts of each role whose text is that of several columns, ``title+body``."""
    return {
        role: column.split("+")
        for role, column in columns.items()
        if isinstance(column, str) and "+" in column.strip("+") and column not in names
    }


def _join(row: TableRow, joined: Mapping[str, Sequence[str]]) -> TableRow:
    """Return a row with the texts of several columns as one; what is missing is left out."""
    values = {role: value for role, value in row.values.items() if "+" not in role}
    for role, parts in joined.items():
        found = [row.values[f"{role}+{part}"] for part in parts]
        filled = [one for one in found if one is not None and one != ""]
        is_text = all(isinstance(one, str) for one in filled)
        wrong = next((one for one in filled if not isinstance(one, str)), None)
        values[role] = " ".join(filled) if is_text else wrong
    return TableRow(row.place, values)


def list_names(path: Path | str, kind: str | None = None) -> list[str]:
    """Return the column names of a table, or its first row; raise as `read_columns`."""
    source = find_one(path, kind)
    if source.kind == "parquet":
        with opening_parquet(source) as table:
            return table.schema_arrow.names
    if source.kind == "jsonl":
        return _list_fields(source)
    rows = _find_layout(source).rows
    return rows[0] if rows else []


def _list_fields(source: Source) -> list[str]:
    """Return the fields of at least half of the first records, or else of all."""
    objects = read_objects(source.name, read_exact_lines(source))
    records = [record for _, record in islice(objects, _PEEKED)]
    counts = Counter(field for record in records for field in record)
    return [name for name, count in counts.items() if 2 * count >= len(records)] or [*counts]


def peek_rows(path: Path | str, kind: str | None = None) -> tuple[list[str], list[list[Any]]]:
    """Return the column names and the first rows of a table; no names if it has no header."""
    source, names = find_one(path, kind), list_names(path, kind)
    if source.kind == "parquet":
        with opening_parquet(source) as table:
            batches = read_batches(table, names)
            records = chain.from_iterable(batch.to_pylist() for batch in batches)
            found: list[JsonObject] = [*islice(records, _PEEKED)]
    elif source.kind == "jsonl":
        objects = read_objects(source.name, read_exact_lines(source))
        found = [record for _, record in islice(objects, _PEEKED)]
    else:
        rows = _find_layout(source).rows
        return (names, rows[1:]) if looks_like_header(rows) else ([], [*rows])
    return names, [[record.get(name) for name in names] for record in found]


def open_lines(path: Path | str) -> tuple[str, Iterator[str]]:
    """Return a text file's name for messages, and its lines; raise as `read_columns`."""
    source = find_one(path)
    return source.name, read_exact_lines(source)


def read_objects(name: str, lines: Iterable[str]) -> Iterator[tuple[str, JsonObject]]:
    """Yield place and object of each line of JSON in the file `name`; blank lines are skipped.

    Raise CorpusError if a line is no object.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place, record = f"{name}:{number}", parse_object(line)
        if record is None and re.match(r"\s*\[\s*(\{|$)", line):
            rule = "begins a JSON array, but each line must be an object"
            raise CorpusError(f"{place} {rule}. Convert the file: jq -c '.[]' FILE > NEW.jsonl")
        if record is None:
            raise CorpusError(f"{place} is not a JSON object. Correct or remove the line.")
        yield place, record


def find_one(path: Path | str, kind: str | None = None) -> Source:
    """Return the source of one file, of another `kind` than its name says if that is given.

    Raise CorpusError if the path names several.
    """
    sources = find_sources([str(path)])
    if len(sources) != 1 or sources[0].path is None:
        raise CorpusError(f"{path} must name one file.")
    return replace(sources[0], kind=kind or sources[0].kind)


class _Layout(NamedTuple):
    """The separator of a TSV or CSV file, and its first rows; if it is plain, " is text."""

    delimiter: str
    is_plain: bool
    rows: list[list[str]]


def _find_layout(source: Source) -> _Layout:
    lines = list(islice(read_exact_lines(source), _PEEKED))
    own = _DELIMITERS.get(source.kind, ",")
    delimiter = find_declared(lines) or find_delimiter(lines, own)
    return _Layout(delimiter, delimiter == own == "\t", _cut(lines, delimiter, own))


def _read_table(
    source: Source,
    columns: Mapping[str, Column],
    has_header: bool | None,
    skipped: Counter[str] | None,
) -> Iterator[TableRow]:
    def fail(fault: tuple[int, str]) -> None:
        raise CorpusError(f"{source.name}:{fault[0]} cannot be read: {fault[1]}. Correct the line.")

    layout = _find_layout(source)
    positions: dict[str, int] = {}
    width, share = _measure(layout.rows)
    most = f"{share * len(layout.rows):,.0f} of the first {len(layout.rows):,} rows have"
    names = {column for column in columns.values() if isinstance(column, str)}
    lines, mark = read_exact_lines(source), layout.delimiter
    for parsed in parse_rows(lines, mark, fail, strict=True, is_plain=layout.is_plain):
        row, place = parsed.cells, f"{source.name}:{parsed.line}"
        if not positions:
            if share < _MOST or (names and names <= {*row}):  # a header, or no better width
                width, most = len(row), "the first row has"
            if skipped is None and not parsed.fits(width):
                noun = "column" if len(row) == 1 else "columns"
                rule = f"{place} has {len(row)} {noun}, but {most} {width}"
                raise CorpusError(f"{rule}. Remove the line if it is a title, or correct it.")
            is_named = has_header is not False and looks_like_header(layout.rows)
            positions = _find_positions(columns, row, has_header, is_named, source)
            by_name = any(isinstance(column, str) for column in columns.values())
            is_usual = (normalize_name(row[n]) in USUAL.get(r, ()) for r, n in positions.items())
            if has_header or (has_header is None and (by_name or all(is_usual))):
                continue
            # Without labels, which recur, a short text may look like a name.
            if has_header is None and LABEL in positions and is_named:
                fault = f"{source.name}: its first line looks like a header"
                raise CorpusError(f"{fault}. Give --header, or --no-header if it is an example.")
        if skipped is not None and max(positions.values()) >= len(row):
            skipped[source.name] += 1
        elif skipped is not None or parsed.fits(width):
            yield TableRow(place, {role: row[number] for role, number in positions.items()})
        else:
            raise CorpusError(f"{place} {parsed.explain(width, mark, most)}")


def _find_positions(
    columns: Mapping[str, Column],
    first: list[str],
    has_header: bool | None,
    is_named: bool,
    source: Source,
) -> dict[str, int]:
    """Return the position of each column, given by name or by position.

    `is_named` is True if the first row looks like a header; else errors do not quote it.
    """
    positions: dict[str, int] = {}
    for role, column in columns.items():
        if isinstance(column, int) and column < len(first):
            positions[role] = column
        elif has_header is not False and column in first:
            positions[role] = first.index(str(column))
        else:
            by_name = is_named and isinstance(column, str)
            raise _missing(source, source.name, columns, first if by_name else range(len(first)))
    return positions


def _missing(
    source: Source, place: str, columns: Mapping[str, Column], known: Sequence[Column]
) -> CorpusError:
    """Return the error for columns of which some are none of the `known` ones."""
    missing = {role: column for role, column in columns.items() if column not in known}
    role, column = next(iter(missing.items()))
    what = f"for {role}" if column == role else f"{column} for {role}"
    shown = ", ".join(map(str, known[:20]))
    if isinstance(known, range):
        shown = f"positions 0 to {len(known) - 1}, and no header"
    rule = f"{place} has no column {what}: it has {shown}."
    if source.kind in _DELIMITERS and parse_object(next(read_exact_lines(source), "")) is not None:
        return CorpusError(f"{source.name} holds JSON objects, a line each. Rename it to .jsonl.")
    if missing.get(LABEL) == LABEL:
        rows = peek_rows(str(source.path))[1]
        bits = sum({*map(str, cells)} == {"0", "1"} for cells in zip(*rows, strict=False))
        if bits > 1:
            rule += f" {bits} columns hold 0 and 1: if each is a label, write those of a row in"
            rule += " one column, such as a|b, for --task multilabel."
    remedy = " ".join(f"{role}=…" for role in missing)
    return CorpusError(f"{rule} Name its columns: --columns {remedy}")


def _read_json_rows(source: Source, columns: Mapping[str, Column]) -> Iterator[TableRow]:
    for place, record in read_objects(source.name, read_exact_lines(source)):
        if not {*columns.values()} <= record.keys():
            raise _lacking(source, place, columns, record)
        yield TableRow(place, {role: record[str(column)] for role, column in columns.items()})


def _lacking(
    source: Source, place: str, columns: Mapping[str, Column], record: JsonObject
) -> CorpusError:
    """Return the error for a record without a field, which most others may have."""
    name = next(str(column) for column in columns.values() if column not in record)
    having = total = 0
    with suppress(CorpusError):  # of a later line
        for _, other in read_objects(source.name, read_exact_lines(source)):
            having, total = having + (name in other), total + 1
    if not having:
        return _missing(source, place, columns, list(record))
    rule = f"has no field {name}, but {having:,} of {total:,} records have it"
    return CorpusError(f"{place} {rule}. Correct or remove the line.")


def _read_parquet(source: Source, columns: Mapping[str, Column]) -> Iterator[TableRow]:
    with opening_parquet(source) as table:
        known = list[str](table.schema_arrow.names)
        names = {
            role: known[column] if isinstance(column, int) and column < len(known) else str(column)
            for role, column in columns.items()
        }
        if not {*names.values()} <= {*known}:
            raise _missing(source, source.name, names, known)
        batches = read_batches(table, sorted(set(names.values())))
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for number, record in enumerate(rows, start=1):
            values = {role: record[name] for role, name in names.items()}
            yield TableRow(f"{source.name}, row {number}", values)


def find_delimiter(lines: Sequence[str], own: str) -> str:
    """Return the delimiter of a table from its first lines.

    Another one than that of the file extension (`own`) is returned only if it splits most lines
    into the same number of columns and `own` splits fewer; for commas and bars, which are also in
    cells, the first line must also hold a usual name.
    """
    rows = _cut(lines, own, own)
    width, share = _measure(rows)
    if not rows or (width > 1 and share == 1):
        return own
    others = [mark for mark in ";\t,|" if mark != own]
    for mark in others:
        found = _cut(lines, mark, own)
        if not found:
            continue
        columns, even = _measure(found)
        # Commas in texts may be as regular as the delimiter, but the first row lacks them.
        is_better = (even, len(found[0]) == columns) > (share, len(rows[0]) == width)
        is_even = columns > 1 and even >= _MOST and (width == 1 or is_better)
        if is_even and 2 * len(found) > len(lines) and (mark in ";\t" or _names_anything(found[0])):
            return mark
    if len(rows[0]) > 1:
        return own
    return next((m for m in others if _names_anything(*_cut(lines[:1], m, own))), own)


def _measure(rows: Sequence[Sequence[str]]) -> tuple[int, float]:
    """Return the width of most rows, and their share."""
    [(width, count)] = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    return width, count / max(1, len(rows))


def _names_anything(row: Sequence[str] = ()) -> bool:
    names = {normalize_name(name) for name in row}
    return len(row) > 1 and any(names & usual for usual in USUAL.values())


def _cut(lines: Iterable[str], delimiter: str, own: str) -> list[list[str]]:
    """Return the rows of some lines, up to a quotation mark that is not closed."""
    unclosed = list[tuple[int, str]]()
    rows = parse_rows(lines, delimiter, unclosed.append, is_plain=delimiter == own == "\t")
    return [row.cells for row in takewhile(lambda _: not unclosed, rows)]


def clean_name(text: str) -> str:
    """Return the name of a label in one spelling of all that print alike."""
    return " ".join(unicodedata.normalize("NFC", text.translate(_INVISIBLE)).split())


def fold_name(text: str) -> str:
    """Return the name of a label without width, ligatures and case (``NFKC_Casefold``)."""
    folded = unicodedata.normalize("NFKC", clean_name(text)).casefold()
    return unicodedata.normalize("NFKC", folded)


def is_named_table(path: Path) -> bool:
    """Return True if a file is a table by its name."""
    return recognize_name(path, named=True)[0] in TABLES


def is_named_sequences(path: Path) -> bool:
    """Return True if a file holds sequences with ids (FASTA, FASTQ, SMILES) by its name."""
    return recognize_name(path, named=True)[0] in PARSERS


def read_sequence_file(path: Path, report: Callable[[str], None]) -> Iterator[SequenceRecord]:
    """Yield the records of a file of sequences; `report` is told what was repaired.

    Raises:
        CorpusError: the file is missing, damaged, not of its kind, or has no record.
    """
    source, counts, is_empty = find_one(path), Counter[str](), True
    for record in read_records(source, counts):
        is_empty = False
        yield record
    if is_empty:
        raise CorpusError(f"{path} holds no record.")
    for reason, count in counts.items():
        report(f"{path}: {count:,} x {reason}")


def list_texts(row: TableRow) -> list[str]:
    """Return the one or two texts of a row; a missing one is blank."""
    found = {role: row.values[role] for role in TEXT_ROLES if role in row.values}
    filled = {role: "" if text is None else text for role, text in found.items()}
    return TableRow(row.place, filled).texts


def read_text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, compressed or not, or of a pipe; none if it is empty.

    Raise InputError if it cannot be read, CorpusError if it is damaged or not UTF-8.
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
        raise not_decodable(error.object, name, UTF_8) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}.") from None
