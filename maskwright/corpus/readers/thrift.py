"""Steps through structs in Thrift's compact protocol, as far as Parquet uses it.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Iterator

I32, I64, LIST, STRUCT = 5, 6, 9, 12
_TRUE, _FALSE, _BYTE, _I16, _DOUBLE, _BINARY, _SET = 1, 2, 3, 4, 7, 8, 10
_DEEPEST = 16


class ThriftError(Exception):
    """Bytes that are no struct, or one that says a thing twice."""


class StructReader:
    """A place in `content`, which moves on; IndexError where the content ends."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.place = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and kind of each field; the caller must read or skip its value before the next."""
        field, seen = 0, set[int]()
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self.integer()
            if field in seen:
                raise ThriftError(f"field {field} stands twice")
            seen.add(field)
            yield field, head & 15

    def integer(self) -> int:
        """Thrift's "zigzag": 0, -1, 1, -2 … are written as 0, 1, 2, 3 …"""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def items(self) -> Iterator[int]:
        """The kind of each item of a list, the caller reading or skipping it."""
        head = self._byte()
        for _ in range(head >> 4 if head >> 4 < 15 else self._varint()):
            yield head & 15

    def skip(self, kind: int, depth: int = _DEEPEST) -> None:
        """Passes over a value, all that is in it included."""
        if not depth:
            raise ThriftError("it is nested too deeply")
        if kind in _LIST_LIKE:
            for item in self.items():
                self.skip(_BYTE if item in (_TRUE, _FALSE) else item, depth - 1)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth - 1)
        elif kind in (_I16, I32, I64):
            self._varint()
        elif kind in _SIZES:
            self.place += _SIZES[kind]
        elif kind == _BINARY:
            length = self._varint()
            self.place += length
        else:  # maps do not occur in Parquet
            raise ThriftError(f"kind {kind} is unknown")
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
                raise ThriftError("a number is too long")


_LIST_LIKE = (LIST, _SET)
_SIZES = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}  # the kind of a boolean field is its value
