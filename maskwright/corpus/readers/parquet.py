"""Reader of Parquet files, a few rows at a time (extra `parquet`)."""

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from maskwright.corpus.documents import Reading, Source
from maskwright.corpus.readers.blocks import Expansion, read_blocks
from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS, TextField
from maskwright.corpus.readers.text import UnreadableError
from maskwright.errors import CorpusError
from maskwright.extras import import_extra

_BUFFER_BYTES = 1 << 20  # with a buffer, pyarrow reads a column chunk in parts
_BATCH_ROWS, _BATCH_BYTES = 64, 64 << 20
_ROW_BYTES = 64  # estimated for each row, even an empty one
# Text is compressed to a twentieth at most. A row group that unpacks to more may be one long value,
# which its many rows repeat.
_TEXT_RATIO = 20
# Errors that pyarrow raises for damaged files, besides its own.
_DAMAGE = (OSError, ValueError, ArithmeticError, LookupError, RuntimeError)


@dataclass(frozen=True)
class ParquetTable:
    """An open Parquet file: `file` is pyarrow's, of `num_bytes`; `name` is for messages."""

    name: str
    file: Any
    num_bytes: int

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [str(name) for name in self.file.schema_arrow.names]

    @property
    def num_groups(self) -> int:
        """The number of its row groups."""
        return self.file.num_row_groups

    def read(self, columns: Sequence[str], groups: range | None = None) -> Iterator[Any]:
        """Yield the rows of some row groups, by default all, in pyarrow's record batches of at most
        about 64 MB.

        Raises:
            CorpusError: the row groups unpack to more than text does.
        """
        groups = range(self.num_groups) if groups is None else groups
        infos = [self.file.metadata.row_group(number) for number in groups]
        Expansion(self.name).add(sum(info.total_byte_size for info in infos), self.num_bytes)
        largest = 1.0  # bytes of a row
        for info in infos:
            is_text = info.total_byte_size <= _TEXT_RATIO * self.num_bytes
            largest = max(largest, info.total_byte_size / (max(info.num_rows, 1) if is_text else 1))
        rows = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / largest)))
        return self.file.iter_batches(rows, groups, columns=columns)


@contextmanager
def opening_parquet(source: Source) -> Generator[ParquetTable]:
    """Open a file; a compressed one is unpacked first, because Parquet is read from its end.

    Raises:
        CorpusError: the file, or a part that is read in the block, is damaged.
        MissingPackageError: pyarrow is not installed.
        UnreadableError: the file is empty.
    """
    assert source.path is not None, "only files are Parquet"
    arrow: Any = import_extra("pyarrow", "parquet", source.name)
    parquet: Any = import_extra("pyarrow.parquet", "parquet", source.name)
    with ExitStack() as stack:
        try:
            if source.compression:
                file: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
                file.writelines(read_blocks(source.path, source.compression, source.name))
            else:
                file = stack.enter_context(source.path.open("rb"))
            num_bytes = file.seek(0, 2)
        except OSError as error:
            raise CorpusError(f"{source.name} cannot be read: {error.strerror}.") from None
        if not num_bytes:
            raise UnreadableError("empty file", f"{source.name} is empty: it has no text.")
        try:
            table = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            yield ParquetTable(source.name, table, num_bytes)
        except (*_DAMAGE, arrow.ArrowException) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise CorpusError(
                f"{source.name} cannot be read as Parquet: {reason}. Fetch or copy it again."
            ) from None


def read_parquet(reading: Reading) -> Iterator[str]:
    """Yield the texts of one column in the order of the rows; texts that are too long are counted.

    Raises:
        CorpusError: as `opening_parquet` and `ParquetTable.read`, or the column is missing.
        MissingPackageError, UnreadableError: as `opening_parquet`.
    """
    source, field = reading.source, TextField.of(reading)
    with opening_parquet(source) as table:
        columns = table.columns
        field.check_columns(columns)
        kind = str(table.file.schema_arrow.field(columns.index(field.name)).type)
        if not kind.removeprefix("dictionary<values=").startswith(("string", "large_string")):
            raise field.no_text()
        span, expansion = source.span, Expansion(source.name)
        groups = range(span.start, span.end) if span else None
        for batch in table.read([field.name], groups):
            for content in map(_read_content, batch.column(0)):
                size = 0 if content is None else len(content)
                expansion.add(_ROW_BYTES + size, table.num_bytes)
                if size > MAX_RECORD_CHARACTERS:
                    reading.counts["record too long"] += 1
                    continue
                value = None if content is None else str(content, "utf-8", "surrogateescape")
                if (text := field.pick(value, columns)) is not None:
                    yield text
    field.check_found()


def _read_content(value: Any) -> Any:
    """Return the bytes of a string, in a dictionary or not, as a buffer; None for null."""
    value = value.value if hasattr(value, "dictionary") else value
    return value.as_buffer() if value.is_valid else None
