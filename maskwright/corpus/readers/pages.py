"""How much memory the pages of a Parquet column ask for, before any is unpacked.

Parquet keeps a column in pages, each compressed by itself and unpacked whole. Its size stands in
the page's header and nowhere else that can be trusted, so the headers are read here. Where the
pages are stands in the footer, which is read here as well: pyarrow ends the whole process over
some damaged footers when asked for it. https://github.com/apache/parquet-format
"""

from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from maskwright.corpus.readers.thrift import I32, I64, LIST, STRUCT, StructReader, ThriftError

MAX_FOOTER_BYTES = 16 << 20

_HEADER_BYTES = 1 << 12  # most headers; one with long statistics is read again with more
_MOST_HEADER_BYTES = 1 << 24
_MOST_PAGES = 1_000_000
_MAGIC = b"PAR1"

# Numbers of fields, by struct.
_ROW_GROUPS = 4  # FileMetaData
_COLUMNS = 1  # RowGroup
_META_DATA = 3  # ColumnChunk
_PACKED_SIZE_OF_CHUNK, _FIRST_DATA_PAGE, _DICTIONARY_PAGE = 7, 9, 11  # ColumnMetaData
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3  # PageHeader


class PageError(Exception):
    """The pages of a column cannot be found, or are too many."""


def largest_page(file: BinaryIO, footer: bytes, column: int) -> int:
    """The unpacked bytes of the largest page in column number `column` of a Parquet file.

    Raises:
        PageError: footer or headers are damaged.
    """
    largest = 0
    try:
        for start, end in _find_chunks(footer, column):
            sizes = _page_sizes(file, start, end)
            largest = max(largest, max(islice(sizes, _MOST_PAGES), default=0))
            if next(sizes, None) is not None:
                raise PageError(f"a column has more than {_MOST_PAGES:,} pages")
    except ThriftError as error:
        raise PageError(f"its footer or a page header is damaged: {error}") from None
    return largest


def read_footer(file: BinaryIO) -> bytes:
    """What a Parquet file says about itself.

    Raises:
        PageError: there is none, or more than readers have memory for.
    """
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


def _find_chunks(footer: bytes, column: int) -> list[tuple[int, int]]:
    """Where the pages of the column begin and end, in each row group."""
    reader = StructReader(footer)
    chunks: list[tuple[int, int]] = []
    try:
        for field, kind in reader.fields():
            if (field, kind) == (_ROW_GROUPS, LIST):
                chunks = [_read_row_group(reader, column) for _ in reader.items()]
            else:
                reader.skip(kind)
    except IndexError:
        raise PageError("its footer is cut off") from None
    return chunks


def _read_row_group(reader: StructReader, column: int) -> tuple[int, int]:
    found: tuple[int, int] | None = None
    for field, kind in reader.fields():
        if (field, kind) == (_COLUMNS, LIST):
            for number, _ in enumerate(reader.items()):
                if number == column:
                    found = _read_chunk(reader)
                else:
                    reader.skip(STRUCT)
        else:
            reader.skip(kind)
    if found is None:
        raise PageError("a row group lacks the column")
    return found


def _read_chunk(reader: StructReader) -> tuple[int, int]:
    numbers: dict[int, int] = {}
    for field, kind in reader.fields():
        if (field, kind) == (_META_DATA, STRUCT):
            wanted = (_PACKED_SIZE_OF_CHUNK, _FIRST_DATA_PAGE, _DICTIONARY_PAGE)
            numbers = _read_numbers(reader, wanted, I64)
        else:
            reader.skip(kind)
    start, size = numbers.get(_FIRST_DATA_PAGE, -1), numbers.get(_PACKED_SIZE_OF_CHUNK, -1)
    dictionary = numbers.get(_DICTIONARY_PAGE, 0)
    start = dictionary if 0 < dictionary < start else start
    if start < 0 or size < 0:
        raise PageError("a column begins before the file")
    return start, start + size


def _read_numbers(reader: StructReader, wanted: tuple[int, ...], kind: int) -> dict[int, int]:
    numbers: dict[int, int] = {}
    for field, found in reader.fields():
        if field in wanted and found == kind:
            numbers[field] = reader.integer()
        else:
            reader.skip(found)
    return numbers


def _page_sizes(file: BinaryIO, start: int, end: int) -> Iterator[int]:
    place = start
    while place < end:
        header, unpacked, packed = _read_header(file, place)
        yield unpacked
        place += header + packed


def _read_header(file: BinaryIO, place: int) -> tuple[int, int, int]:
    """Bytes of the page header at `place`, unpacked bytes of the page, packed ones."""
    size = _HEADER_BYTES
    while True:
        file.seek(place)
        content = file.read(size)
        reader = StructReader(content)
        try:
            sizes = _read_numbers(reader, (_UNPACKED_SIZE, _PACKED_SIZE), I32)
        except IndexError:  # the header goes on
            if len(content) < size or size >= _MOST_HEADER_BYTES:
                raise PageError("a page header is cut off") from None
            size *= 16
            continue
        # Readers that take 32 bits of a longer number would see another one.
        if len(sizes) < 2 or not all(0 <= number < 2**31 for number in sizes.values()):
            raise PageError("a page header gives no size")
        return reader.place, sizes[_UNPACKED_SIZE], sizes[_PACKED_SIZE]
