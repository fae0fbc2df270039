"""Readers of records with a text field: JSON lines, and CSV and TSV tables with a header."""

import csv
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from maskwright.corpus.documents import Reading, Source
from maskwright.corpus.readers.signatures import UnreadableError
from maskwright.corpus.readers.text import decode_text, read_lines, read_text
from maskwright.errors import CorpusError
from maskwright.files import parse_object

# A longer line of JSON or of a table is cut, so it is not parsed as a record (parsing takes up to
# thirty times its size in memory); a longer value in a Parquet file is dropped.
MAX_RECORD_CHARACTERS = 16_000_000
_NUM_SHOWN = 12
# A row with an unclosed quotation mark is dropped after this many characters.
MAX_ROW_CHARACTERS = 10_000_000
_MOST_TRIES = 20  # to read the lines of such a row as rows
BAD_LINE = "bad JSON line"
_ARRAY = re.compile(r"\s*\[\s*(?:\{|$)")  # of records, on one line or on several


class TextField:
    """The field with the text: picks texts from records and counts records without text.

    If no record has the field, this is an error even in a folder, because the whole source would
    be lost.
    """

    def __init__(self, name: str, source: str, counts: Counter[str]) -> None:
        self.name, self.source, self._counts = name, source, counts
        self._found = False
        self._failure: CorpusError | None = None  # raised if no record has a text

    @classmethod
    def of(cls, reading: Reading) -> "TextField":
        """Return the field that the configuration names."""
        field = cls(reading.config.text_field, reading.source.name, reading.counts)
        field._found = reading.source.span is not None  # the beginning of the file has the field
        return field

    def pick(self, value: object, columns: Collection[str]) -> str | None:
        """Return `value` if it is a text, else count it; `columns` are the record's columns."""
        if isinstance(value, str):
            self._found = True
            return value
        reason = f"missing field {self.name}" if value is None else f"field {self.name} is not text"
        self._counts[reason] += 1
        if self._failure is None and columns:
            self._failure = self.no_text() if self.name in columns else self._no_column(columns)
        return None

    def check_found(self) -> None:
        """Raise CorpusError at the end of a source if no record had the field."""
        if self._failure is not None and not self._found:
            raise self._failure

    def check_columns(self, columns: Collection[str]) -> None:
        """Raise CorpusError unless the field is one of `columns`; the error lists some of them."""
        if self.name not in columns:
            raise self._no_column(columns)

    def no_text(self) -> CorpusError:
        """Return the error for a field whose values are not text."""
        return CorpusError(
            f"{self.source} has no text in its field {self.name}: its values are not strings."
            " Choose another with corpus.text_field."
        )

    def _no_column(self, columns: Collection[str]) -> CorpusError:
        # A hostile record may have a million columns, and columns may have a million characters.
        shown = [
            textwrap.shorten(repr(column[:100])[1:-1], 40) for column in islice(columns, _NUM_SHOWN)
        ]
        shown += ["…"] * (len(columns) > _NUM_SHOWN)
        return CorpusError(
            f"{self.source} has no field {self.name}; it has: {', '.join(shown)}."
            " Choose with corpus.text_field."
        )


def read_jsonl(reading: Reading) -> Iterator[str]:
    """Yield the texts of JSON lines; lines that are not a JSON object are counted.

    Raises:
        UnreadableError: no line is a JSON object, or the file is a JSON array.
        CorpusError: no object has the field.
    """
    field, counts = TextField.of(reading), reading.counts
    num_objects, first_bad, span = 0, 0, reading.source.span
    for number, line in enumerate(_read_lines(reading), start=1):
        if not line or line.isspace():
            continue
        # Files may have been joined with their byte order marks. Cleaning removes raw control
        # characters.
        record = parse_object(line.lstrip("\ufeff"), strict=False)
        if record is None:
            if _ARRAY.match(line) and not (num_objects or first_bad or (span and span.start)):
                what = f"{field.source} is a JSON array, but must have one object per line."
                raise UnreadableError(
                    "JSON array", f"{what} Convert it: jq -c '.[]' FILE > NEW.jsonl"
                )
            counts[_find_reason(counts, reading.source, number)] += 1
            first_bad = first_bad or number
            continue
        num_objects += 1
        if (text := field.pick(record.get(field.name), record)) is not None:
            yield text
    if not num_objects and span is None:
        where = f"; line {first_bad} is not an object" if first_bad else ""
        raise UnreadableError(
            "not JSON lines",
            f"{field.source} contains no JSON object, but must have one per line{where}.",
        )
    field.check_found()


def _find_reason(counts: Counter[str], source: Source, number: int) -> str:
    """Return the reason for counting a bad line, which names the first bad line of all sources."""
    found = next((reason for reason in counts if reason.startswith(BAD_LINE)), None)
    start = source.span.start if source.span else 0
    after = f" after byte {start:,}" if start else ""
    return found or f"{BAD_LINE} (first {Path(source.title).name}:{number}{after})"


def _read_lines(reading: Reading) -> Iterator[str]:
    return read_lines(read_text(reading), MAX_RECORD_CHARACTERS, reading.counts)


def read_exact_lines(source: Source) -> Iterator[str]:
    """Yield the lines of a text file.

    Raises:
        CorpusError: the file is damaged or not UTF-8, or a line is too long.
    """
    counts: Counter[str] = Counter()
    texts = decode_text(source.read_bytes(), source.name, exact=True)
    for number, line in enumerate(read_lines(texts, MAX_RECORD_CHARACTERS, counts), start=1):
        if counts:
            raise CorpusError(f"{source.name}:{number} is too long. Correct or remove the line.")
        yield line


def read_table(reading: Reading, **dialect: Any) -> Iterator[str]:
    """Yield the texts of one column of CSV (RFC 4180), or in the dialect of these options."""
    field = TextField.of(reading)
    parsed = parse_rows(_read_lines(reading), reading.counts, **dialect)
    header = next(parsed, None)
    if header is None:
        raise UnreadableError("no header", f"{field.source} has no header line.")
    field.check_columns(header)
    column = header.index(field.name)
    for row in parsed:
        if (text := field.pick(row[column] if column < len(row) else None, header)) is not None:
            yield text


class _RowLines:
    """An iterator of lines for the csv module, which reads lines until a row's quotes are closed.

    `row` has the lines that were read since `begin_row`.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._tries = iter(lines), _MOST_TRIES
        self.begin_row()

    def begin_row(self) -> None:
        self.row, self._num_characters = list[str](), 0

    def put_back(self) -> None:
        """Read the lines of the row again, but for the first; none after `_MOST_TRIES` rows."""
        if self._tries:
            self._tries -= 1
            self._lines = chain(self.row[1:], self._lines)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:  # a row that has begun has an unclosed quotation mark
            raise csv.Error("row not closed") if self.row else StopIteration
        self.row.append(line)
        self._num_characters += len(line) + 1
        if self._num_characters > MAX_ROW_CHARACTERS:
            raise csv.Error("row too long")
        return line + "\n"


def parse_rows(lines: Iterable[str], counts: Counter[str], **dialect: Any) -> Iterator[list[str]]:
    """Yield the filled rows of a table, with options of `csv.reader`; count those not parsed.

    A quotation mark that nothing closes costs one line: those after it are rows again. A table with
    many such marks loses the rest of such rows, so that it is read in linear time.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARACTERS))
    read = _RowLines(lines)
    rows = csv.reader(read, **dialect)
    while True:
        read.begin_row()
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            counts["bad table row"] += 1
            read.put_back()
            rows = csv.reader(read, **dialect)
            continue
        if row:
            yield row
