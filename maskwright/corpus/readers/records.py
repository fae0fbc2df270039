"""Readers of records with a text field: JSON lines, and CSV and TSV tables with a header."""

import csv
import re
import textwrap
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from maskwright.corpus.documents import Reading, Source, UnreadableError, read_lines
from maskwright.corpus.encoding import decode_text
from maskwright.corpus.readers.text import read_text
from maskwright.errors import CorpusError
from maskwright.files import parse_object

# A longer line of JSON or of a table is cut, so it is not parsed as a record (parsing takes up to
# thirty times its size in memory); a longer value in a Parquet file is dropped.
MAX_RECORD_CHARACTERS = 16_000_000
_NUM_SHOWN = 12
# A row with an unclosed quotation mark is dropped after this many characters.
MAX_ROW_CHARACTERS = 10_000_000
_MAX_TRIES = 20  # to read the lines of such a row as rows
BAD_LINE, OTHER_WIDTH = "bad JSON line", "table row of another width"
FIRST = " (first "  # in a reason for counting, before its first line
_MAX_BAD_ROWS, _MAX_EARLY_BAD_ROWS = 3, 1_000  # of another width
_MARKS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_ARRAY = re.compile(r"\s*\[\s*(?:\{|$)")  # of records, on one line or on several


class TextField:
    """The field with the text: picks texts from records and counts records without text.

    If no record has the field, this is an error even in a folder, because the whole source would
    be lost.
    """

    def __init__(self, reading: Reading, name: str = "") -> None:
        self.name, self.source = name or reading.config.text_field, reading.source.name
        self._counts = reading.counts
        self._found = reading.source.span is not None  # the beginning of the file has the field
        self._failure: CorpusError | None = None  # raised if no record has a text

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
        shown = [textwrap.shorten(column, 40) for column in islice(columns, _NUM_SHOWN)]
        shown += ["…"] * (len(columns) > _NUM_SHOWN)
        return CorpusError(
            f"{self.source} has no field {self.name}; it has: {', '.join(shown)}."
            " Choose with corpus.text_field."
        )


def read_jsonl(reading: Reading) -> Iterator[str]:
    """Yield the texts of JSON lines; lines that are not a JSON object are counted.

    Raise UnreadableError if no line is one, CorpusError if no object has the field.
    """
    field, counts = TextField(reading), reading.counts
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
            counts[_find_reason(counts, reading.source, number, BAD_LINE)] += 1
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


def _find_reason(counts: Counter[str], source: Source, number: int, kind: str) -> str:
    found = next((reason for reason in counts if reason.startswith(f"{kind}{FIRST}")), None)
    start = source.span.start if source.span else 0
    after = f" after byte {start:,}" if start else ""
    return found or f"{kind}{FIRST}{Path(source.title).name}:{number}{after})"


def _read_lines(reading: Reading) -> Iterator[str]:
    return read_lines(read_text(reading), MAX_RECORD_CHARACTERS, reading.counts)


def read_exact_lines(source: Source) -> Iterator[str]:
    """Yield a file's lines, to fine-tune or evaluate on; CorpusError if too long or not UTF-8."""
    counts: Counter[str] = Counter()
    texts = decode_text(source.read_bytes(), source.name, exact=True)
    for number, line in enumerate(read_lines(texts, MAX_RECORD_CHARACTERS, counts), start=1):
        if counts:
            raise CorpusError(f"{source.name}:{number} is too long. Correct or remove the line.")
        yield line


def read_table(reading: Reading, own: str = ",") -> Iterator[str]:
    """Yield the texts of one column of a table with a header.

    Args:
        own: the separator of the file extension; another one is used if only that one yields the
            field. A table that is separated by tabs, and whose own separator they are, is TSV.
    """
    field, lines, counts = TextField(reading), _read_lines(reading), reading.counts
    head = list(islice(lines, 2))
    delimiter = find_declared(head) or next(
        (mark for mark in (own, *";\t,") if _has_column(head, mark, field.name)), own
    )
    is_plain = own == delimiter == "\t"
    widths = _Widths(reading, delimiter)
    parsed = parse_rows(
        chain(head, lines), delimiter, lambda _: counts.update(["bad table row"]), is_plain=is_plain
    )
    header = next(parsed, None)
    if header is None:
        raise UnreadableError("no header", f"{field.source} has no header line.")
    field.check_columns(header.cells)
    column, width = header.cells.index(field.name), len(header.cells)
    for row in parsed:
        if widths.check(row, width):
            yield row.cells[column]
    widths.check_few(0)


def _has_column(head: Sequence[str], mark: str, name: str) -> bool:
    return any(name in row.cells for row in parse_rows(head[:1], mark, is_plain=mark == "\t"))


class RawRow(NamedTuple):
    """A row of a table: the number of its first line, its number of lines, and its cells."""

    line: int
    num_lines: int
    cells: list[str]

    def fits(self, width: int) -> bool:
        """Return True if the row has `width` cells; more may follow if they are empty."""
        return len(self.cells) >= width and not any(self.cells[width:])

    def explain(self, width: int, delimiter: str, whose: str = "the first row has") -> str:
        """Return the rule that the width breaks, the likely cause and the remedy."""
        found, mark = len(self.cells), _MARKS.get(delimiter, delimiter)
        cause = f"a {mark}" if found > width else "a line end"
        noun = "column" if found == 1 else "columns"
        rule = f"has {found} {noun}, but {whose} {width}"
        return f"{rule}. Quote texts that contain {cause}, or correct the line."


class _Widths:
    """The rows of a table that are dropped because they have another width."""

    def __init__(self, reading: Reading, delimiter: str) -> None:
        self._reading, self._delimiter = reading, delimiter
        self._num_rows = self._num_bad = 0
        self._failure: CorpusError | None = None

    def check(self, row: RawRow, width: int) -> bool:
        """Return True if a row has `width` cells; else count it; raise if there are too many."""
        self._num_rows += 1
        if row.fits(width):
            return True
        source, counts = self._reading.source, self._reading.counts
        counts[_find_reason(counts, source, row.line, OTHER_WIDTH)] += 1
        if self._failure is None:
            place = f"{source.name}, line {row.line:,}"
            self._failure = CorpusError(f"{place}: {row.explain(width, self._delimiter)}")
        self._num_bad += 1
        self.check_few(_MAX_EARLY_BAD_ROWS)
        return False

    def check_few(self, least: int) -> None:
        """Raise CorpusError if over 1 % of the rows, and more than a few or all, were dropped."""
        is_many = self._num_bad > max(least, _MAX_BAD_ROWS, self._num_rows / 100)
        is_all = self._num_bad == self._num_rows and self._reading.source.span is None
        if self._failure is not None and (is_many or (is_all and not least)):
            raise self._failure


def find_declared(lines: Sequence[str]) -> str | None:
    """Return the separator that a first line ``sep=;`` declares, as Excel writes it, or None."""
    declared = _SEPARATOR.fullmatch(lines[0]) if lines else None
    return declared and declared[1]


class _RowLines:
    """An iterator of lines for the csv module, which reads lines until a row's quotes are closed.

    `row` has the lines that were read since `begin_row`; `number` is the number of the last one.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._tries, self.number = iter(lines), _MAX_TRIES, 0
        self._waiting: deque[str] = deque()
        self.begin_row()

    def begin_row(self) -> None:
        self.row, self._num_characters = list[str](), 0

    def put_back(self, is_bounded: bool = True) -> None:
        """Read the lines of the row again, but for the first; at most `_MAX_TRIES` times."""
        if self._tries or not is_bounded:
            self._tries -= is_bounded
            self._waiting.extendleft(reversed(self.row[1:]))
            self.number -= len(self.row) - 1
            del self.row[1:]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else next(self._lines, None)
        if line is None:  # a row that has begun has an unclosed quotation mark
            raise csv.Error("a quotation mark is not closed") if self.row else StopIteration
        self.number += 1
        self.row.append(line)
        self._num_characters += len(line) + 1
        if self._num_characters > MAX_ROW_CHARACTERS:
            raise csv.Error("the row is too long")
        return line + "\n"


def parse_rows(
    lines: Iterable[str],
    delimiter: str,
    drop: Callable[[tuple[int, str]], object] = lambda fault: None,
    *,
    strict: bool = False,
    is_plain: bool = False,
) -> Iterator[RawRow]:
    """Yield the filled rows of a table, without a first line ``sep=;``.

    A quotation mark that nothing closes costs one line: those after it are rows again. A table with
    many such marks loses the rest of such rows, so that it is read in linear time.

    Args:
        drop: called with line and fault of a row that cannot be parsed.
        strict: text after a closing quotation mark is a fault.
        is_plain: quotation marks are text, as in TSV (IANA), unless the first row is quoted or only
            quoted cells have its width, as pandas and spreadsheets write tabs and line ends.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARACTERS))
    read, width = _RowLines(lines), 0
    while True:
        read.begin_row()
        fault = ""
        try:
            cells = next(csv.reader(read, delimiter=delimiter, strict=strict or is_plain))
        except StopIteration:
            return
        except csv.Error as error:
            cells, fault = list[str](), str(error)
        line = read.number - len(read.row) + 1
        if line == 1 and find_declared(read.row):
            continue
        if is_plain and '"' in read.row[0]:
            whole = read.row[0].split("\t")
            if not width and cells and all(cell[:1] == cell[-1:] == '"' for cell in whole):
                is_plain = False
            elif not _needs_quotes(read.row, cells, width):
                is_one = len(read.row) == 1 and len(cells) == len(whole)
                cells = _keep_marks(whole, cells) if is_one else whole
                read.put_back(is_bounded=False)
        elif fault:
            drop((line, fault))
            read.put_back()
        if cells and (len(cells) == width or any(map(str.strip, cells))):
            width = width or len(cells)
            yield RawRow(line, len(read.row), cells)


def _needs_quotes(lines: Sequence[str], cells: Sequence[str], width: int) -> bool:
    """Return True if the first line of a TSV row has the table's width only with quoted cells.

    A quoted last cell may end on a later line, but not beyond a line that is a row itself.
    """
    if len(cells) != width:
        return False
    widths = [line.count("\t") + 1 for line in lines]
    return widths[0] != width or (len(lines) > 1 and (width == 1 or width not in widths[1:]))


def _keep_marks(whole: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Return cells that were unquoted only where quotation marks were doubled."""
    pairs = zip(whole, cells, strict=True)
    return [plain if cell and plain == f'"{cell}"' else cell for plain, cell in pairs]
