"""How much memory the pages of a Parquet column ask for, before any is unpacked.

Parquet keeps a column in pages, each compressed by itself and unpacked whole. Its size stands in
the page's header and nowhere else that can be trusted, so the headers are read here: Thrift's
compact protocol, of which only two numbers are wanted.
https://github.com/apache/parquet-format, https://github.com/apache/thrift (compact protocol)
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

_HEADER_BYTES = 1 << 12  # most headers; one with long statistics is read again with more
_MOST_HEADER_BYTES = 1 << 24
_PADDING_BYTES = 100  # old writers forget the last header in a column's size; readers allow it
_MOST_PAGES = 1_000_000
_DEEPEST = 16
_I32, _I64, _BINARY, _LIST, _SET, _MAP, _STRUCT = 5, 6, 8, 9, 10, 11, 12
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3  # fields of PageHeader


class PageError(Exception):
    """What should be a page header is none."""


def largest_page(file: BinaryIO, metadata: Any, column: int) -> int:
    """The unpacked bytes of the largest page in column number `column`.

    Args:
        file: the whole Parquet file.
        metadata: pyarrow's, of that file.

    Raises:
        PageError: a page header is damaged.
    """
    largest = 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset and chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        sizes = _page_sizes(file, start, start + chunk.total_compressed_size)
        largest = max(largest, max(islice(sizes, _MOST_PAGES), default=0))
        if next(sizes, None) is not None:
            raise PageError(f"a column has more than {_MOST_PAGES:,} pages")
    return largest


def _page_sizes(file: BinaryIO, start: int, end: int) -> Iterator[int]:
    place = start
    if place < 0:
        raise PageError("a column begins before the file")
    while place < end + _PADDING_BYTES:
        try:
            header, unpacked, packed = _read_header(file, place)
        except PageError:
            if place >= end:
                return
            raise
        yield unpacked
        place += header + packed


def _read_header(file: BinaryIO, place: int) -> tuple[int, int, int]:
    """Bytes of the page header at `place`, unpacked bytes of the page, packed ones."""
    size = _HEADER_BYTES
    while True:
        file.seek(place)
        content = file.read(size)
        reader = _CompactReader(content)
        try:
            sizes = reader.read_sizes()
            return reader.place, *sizes
        except IndexError:  # the header goes on
            if len(content) < size or size >= _MOST_HEADER_BYTES:
                raise PageError("a page header is cut off") from None
            size *= 16


class _CompactReader:
    """Steps through a Thrift struct; IndexError where the content ends."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.place = 0

    def read_sizes(self) -> tuple[int, int]:
        """Unpacked and packed bytes, from a PageHeader."""
        sizes: dict[int, int] = {}
        for field, kind in self._fields():
            if field in (_UNPACKED_SIZE, _PACKED_SIZE) and kind == _I32:
                sizes[field] = _signed(self._varint() & 0xFFFFFFFF)
            else:
                self._skip(kind, _DEEPEST)
        if len(sizes) < 2 or min(sizes.values()) < 0:
            raise PageError("a page header gives no size")
        return sizes[_UNPACKED_SIZE], sizes[_PACKED_SIZE]

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while head := self._byte():
            step = head >> 4
            field = field + step if step else _signed(self._varint())
            yield field, head & 15

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
                raise PageError("a number in a page header is too long")

    def _skip(self, kind: int, depth: int) -> None:
        if not depth:
            raise PageError("a page header is nested too deeply")
        if kind in (1, 2):  # a boolean is its own kind
            return
        if kind == 3:
            self.place += 1
        elif kind in (4, _I32, _I64):
            self._varint()
        elif kind == 7:
            self.place += 8
        elif kind == _BINARY:
            length = self._varint()
            self.place += length
        elif kind in (_LIST, _SET):
            self._skip_list(depth)
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner, depth - 1)
        else:  # maps do not occur in page headers
            raise PageError(f"a page header holds a field of kind {kind}")
        if self.place > len(self._content):
            raise IndexError

    def _skip_list(self, depth: int) -> None:
        head = self._byte()
        number = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(number):
            if head & 15 in (1, 2):
                self._byte()
            else:
                self._skip(head & 15, depth - 1)


def _signed(number: int) -> int:
    """Thrift's "zigzag": 0, -1, 1, -2 … as 0, 1, 2, 3 …"""
    return (number >> 1) ^ -(number & 1)
