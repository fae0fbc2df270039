"""Reader of one string column of a Parquet file, a few rows at a time (extra `parquet`).

A file of 1 kB can make pyarrow take gigabytes of memory, by a page that unpacks to gigabytes
(31 kB: 5 GB) or by one long value that many rows repeat. Only the page headers state the unpacked
sizes, so they are read first, to choose the number of rows to read at a time.
https://github.com/apache/parquet-format
"""

import importlib
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.corpus.documents import Reading, Span
from maskwright.corpus.readers.blocks import Compression, Expansion, read_blocks
from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS, TextField
from maskwright.corpus.readers.signatures import UnreadableError, check_signature
from maskwright.errors import CorpusError
from maskwright.extras import import_extra

MAX_PAGE_BYTES = 256 << 20
MAX_FOOTER_BYTES = 16 << 20
_HEAD_BYTES = 1 << 12
_BATCH_ROWS = 64
_BATCH_BYTES = 64 << 20
_ROW_BYTES = 64  # estimated for each row, even an empty one
# Errors that pyarrow raises for damaged files, besides its own.
_DAMAGE = (OSError, ValueError, ArithmeticError, LookupError, RuntimeError)
_BUFFER_BYTES = 1 << 20  # with a buffer, pyarrow reads a column chunk in parts
_HEADER_BYTES = 1 << 12  # enough for most page headers; a longer one is read again with more
_MOST_HEADER_BYTES = 1 << 24
_MOST_PAGES = 1_000_000
_MAGIC = b"PAR1"

# Thrift's value types. The type of a boolean field is its value.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET = range(1, 11)
_STRUCT = 12
_FIXED_BYTES = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
_DEEPEST = 16
# Number and type of the fields with the offsets and sizes of pages.
_ROW_GROUPS = (4, _LIST)  # of FileMetaData
_COLUMNS = (1, _LIST)  # of RowGroup
_META_DATA = (3, _STRUCT)  # of ColumnChunk
_PLACES = ((7, _I64), (9, _I64), (11, _I64))  # packed bytes, offsets of data and dictionary pages
_SIZES = ((2, _I32), (3, _I32))  # of PageHeader: unpacked and packed bytes of the page


def read_parquet(reading: Reading) -> Iterator[str]:
    """Yield the texts of one column in the order of the rows; texts that are too long are counted.

    Raises:
        CorpusError: the file is damaged, asks for too much memory, or lacks the column.
        MissingPackageError: pyarrow is not installed.
        UnreadableError: the file is empty.
    """
    field, path = TextField.of(reading), reading.source.path
    assert path is not None, "only files are Parquet"
    arrow: Any = import_extra("pyarrow", "parquet", field.source)
    parquet: Any = import_extra("pyarrow.parquet", "parquet", field.source)
    with _open_seekable(path, reading.source.compression, field.source) as (file, num_bytes):
        try:
            footer = read_footer(file)
            table = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            columns = [str(name) for name in table.schema_arrow.names]
            field.check_columns(columns)
            span = reading.source.span or Span(0, table.metadata.num_row_groups)
            groups = range(span.start, span.end)
            rows = _choose_rows(arrow, table, file, footer, field, groups)
            expansion = Expansion(field.source)
            for batch in table.iter_batches(rows, groups, columns=[field.name]):
                column = batch.column(0)
                if arrow.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
                expansion.add(_ROW_BYTES * len(column) + column.nbytes, num_bytes)
                for value in _read_values(arrow, column, reading.counts):
                    if (text := field.pick(value, columns)) is not None:
                        yield text
        except (*_DAMAGE, arrow.ArrowException, PageError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise CorpusError(
                f"{field.source} cannot be read as Parquet: {reason}. Fetch or copy it again."
            ) from None
    field.check_found()


def _choose_rows(
    arrow: Any, table: Any, file: BinaryIO, footer: bytes, field: TextField, groups: range
) -> int:
    """Return the number of rows to read at a time, which bounds memory."""
    kind = table.schema_arrow.field(field.name).type
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    if kind not in (arrow.string(), arrow.large_string(), arrow.string_view()):
        raise field.no_text()
    leaves = [table.metadata.schema.column(n).path for n in range(table.metadata.num_columns)]
    if leaves.count(field.name) != 1:
        raise PageError(f"the schema is ambiguous about {field.name}")
    largest = find_largest_page(file, footer, leaves.index(field.name), groups)
    if largest > MAX_PAGE_BYTES:
        raise CorpusError(
            f"{field.source} has a page of {largest >> 20} MB in its column {field.name}; the limit"
            f" is {MAX_PAGE_BYTES >> 20} MB. Write the file again with smaller pages (pyarrow:"
            " write_batch_size=16)."
        )
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(largest, 1)))


def _read_values(arrow: Any, column: Any, counts: Counter[str]) -> list[str | None]:
    if column.nbytes > MAX_RECORD_CHARACTERS:
        column = _drop_long(column.cast(arrow.large_string()), counts)
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        values: list[bytes | None] = column.cast("binary").to_pylist()
        return [None if v is None else v.decode("utf-8", "surrogateescape") for v in values]


def _drop_long(column: Any, counts: Counter[str]) -> Any:
    """Replace long values by nulls, because a Python string may take four times their bytes."""
    compute: Any = importlib.import_module("pyarrow.compute")
    fits = compute.less_equal(compute.binary_length(column), MAX_RECORD_CHARACTERS)
    counts["record too long"] += len(column) - column.null_count - (compute.sum(fits).as_py() or 0)
    return column.filter(fits, null_selection_behavior="emit_null")


@contextmanager
def _open_seekable(
    path: Path, compression: Compression, name: str
) -> Generator[tuple[BinaryIO, int]]:
    """Open the file and return it with its size.

    A compressed file is first unpacked to a temporary file, because Parquet is read from its end.
    """
    with ExitStack() as stack:
        try:
            if compression:
                file: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
                file.writelines(read_blocks(path, compression, name))
            else:
                file = stack.enter_context(path.open("rb"))
            size = file.seek(0, 2)
            file.seek(0)
            head = file.read(_HEAD_BYTES)
            file.seek(0)
        except OSError as error:
            raise CorpusError(f"{name} cannot be read: {error.strerror}.") from None
        if not size:
            raise UnreadableError("empty file", f"{name} is empty: it has no text.")
        if not head.startswith(b"PAR1"):
            check_signature(head, name)
        yield file, size


class PageError(Exception):
    """A footer or page header is damaged or asks for too much memory."""


def read_footer(file: BinaryIO) -> bytes:
    """Return the metadata at the end of a Parquet file; raise PageError if missing or too large."""
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    ending = file.read(8)
    length = int.from_bytes(ending[:4], "little")
    if ending[4:] != _MAGIC or length > size - 8:
        raise PageError("it has no footer")
    if length > MAX_FOOTER_BYTES:
        raise PageError(f"its footer has more than {MAX_FOOTER_BYTES >> 20} MB")
    file.seek(size - 8 - length)
    return file.read(length)


def count_row_groups(path: Path) -> int:
    """Return the number of row groups of a file; 0 if it is damaged."""
    try:
        with path.open("rb") as file:
            reader = StructReader(read_footer(file))
            return next((reader.begin_list()[1] for _ in reader.fields(_ROW_GROUPS)), 0)
    except (OSError, PageError, IndexError):
        return 0


def find_largest_page(
    file: BinaryIO, footer: bytes, column: int, groups: range = range(sys.maxsize)
) -> int:
    """Return the unpacked bytes of the largest page in column number `column` of row groups.

    The footer is parsed here because pyarrow 26 aborts the process (SIGABRT) on one in a thousand
    damaged footers when asked for the offset of a column, and no library reads page headers.

    Raises:
        PageError: footer or page headers are damaged.
    """
    try:
        found = _find_chunks(StructReader(footer), column)
        chunks = list(islice(found, groups.start, groups.stop))
    except IndexError:
        raise PageError("its footer is cut off") from None
    largest = 0
    for start, end in chunks:
        sizes = _read_page_sizes(file, start, end)
        largest = max(largest, max(islice(sizes, _MOST_PAGES), default=0))
        if next(sizes, None) is not None:
            raise PageError(f"a column has more than {_MOST_PAGES:,} pages")
    return largest


def _find_chunks(reader: "StructReader", column: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of the column's pages, for each row group."""
    for _ in reader.fields(_ROW_GROUPS):
        for _ in reader.items():
            chunks = list(_find_chunk(reader, column))
            if len(chunks) != 1:
                raise PageError("a row group lacks the column")
            yield chunks[0]


def _find_chunk(reader: "StructReader", column: int) -> Iterator[tuple[int, int]]:
    for _ in reader.fields(_COLUMNS):
        for number, _ in enumerate(reader.items()):
            if number != column:
                reader.skip(_STRUCT)
                continue
            for _ in reader.fields(_META_DATA):
                found = {field: reader.integer() for field in reader.fields(*_PLACES)}
                size, first, dictionary = (found.get(field, -1) for field, _ in _PLACES)
                start = dictionary if 0 < dictionary < first else first
                if start < 0 or size < 0:
                    raise PageError("a column begins before the file")
                yield start, start + size


def _read_page_sizes(file: BinaryIO, start: int, end: int) -> Iterator[int]:
    """Yield the unpacked bytes of the pages between two offsets in the file."""
    place, size = start, _HEADER_BYTES
    while place < end:
        file.seek(place)
        content = file.read(size)
        reader = StructReader(content)
        try:
            found = {field: reader.integer() for field in reader.fields(*_SIZES)}
        except IndexError:  # the header is longer
            if len(content) < size or size >= _MOST_HEADER_BYTES:
                raise PageError("a page header is cut off") from None
            size *= 16
            continue
        # pyarrow takes the low 32 bits of a longer number, which is another size.
        if len(found) < 2 or not all(0 <= number < 2**31 for number in found.values()):
            raise PageError("a page header has no size")
        unpacked, packed = (found[field] for field, _ in _SIZES)
        yield unpacked
        place, size = place + reader.place + packed, _HEADER_BYTES


class StructReader:
    """Reader of structs in Thrift's compact protocol, as far as Parquet uses it.

    Reading past the end raises IndexError.
    https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def fields(self, *wanted: tuple[int, int], depth: int = _DEEPEST) -> Iterator[int]:
        """Yield the number of each requested field, (number, kind), and skip all others.

        The caller reads the value of a field before it requests the next field.
        """
        field, seen = 0, set[int]()
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self.integer()
            if field in seen:
                raise PageError(f"field {field} occurs twice in a struct")
            seen.add(field)
            if (field, head & 15) in wanted:
                yield field
            else:
                self.skip(head & 15, depth)

    def items(self) -> Iterator[int]:
        """Yield the kind of each item of a list, which the caller reads or skips."""
        kind, number = self.begin_list()
        for _ in range(number):
            yield kind

    def begin_list(self) -> tuple[int, int]:
        """Return the kind and the number of the items of a list, which follow."""
        head = self._byte()
        return head & 15, head >> 4 if head >> 4 < 15 else self._varint()

    def integer(self) -> int:
        """Return a zigzag-encoded number: 0, -1, 1, -2 … are stored as 0, 1, 2, 3 …"""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def skip(self, kind: int, depth: int = _DEEPEST) -> None:
        """Skip a value of any kind but a map, which Parquet does not use."""
        if not depth:
            raise PageError("it is nested too deeply")
        if kind in (_LIST, _SET):
            for item in self.items():
                self.skip(_BYTE if item in (_TRUE, _FALSE) else item, depth - 1)
        elif kind == _STRUCT:
            for _ in self.fields(depth=depth - 1):
                pass
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BINARY:
            length = self._varint()
            self.place += length
        elif kind in _FIXED_BYTES:
            self.place += _FIXED_BYTES[kind]
        else:
            raise PageError(f"it has a field of unknown kind {kind}")
        if self.place > len(self._content):
            raise IndexError

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise PageError("it has a number of more than 64 bits")
