"""Parquet: one column of strings, read a few rows at a time (extra `parquet`)."""

import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.corpus.extras import import_extra
from maskwright.corpus.formats import Compression
from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.fields import TextField
from maskwright.corpus.readers.unreadable import UnreadableError
from maskwright.errors import CorpusError

_BATCH_ROWS = 64
_BUFFER_BYTES = 1 << 20  # reads a column chunk piecemeal, not whole


def read_parquet(path: Path, compression: Compression, field: TextField) -> Iterator[str]:
    """The texts of one column, in the order of the rows.

    Raises:
        CorpusError: pyarrow is missing, the file is damaged or does not have the column.
        UnreadableError: the file is empty.
    """
    arrow: Any = import_extra("pyarrow", "parquet", field.source)
    parquet: Any = import_extra("pyarrow.parquet", "parquet", field.source)
    with _open_seekable(path, compression, field.source) as file:
        try:
            table = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            columns = [str(name) for name in table.schema_arrow.names]
            field.check_columns(columns)
            for batch in table.iter_batches(_BATCH_ROWS, columns=[field.name]):
                for value in _to_python(batch.column(0)):
                    if (text := field.pick(value, columns)) is not None:
                        yield text
        except (arrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise CorpusError(f"{field.source} is no readable Parquet file: {reason}") from None
    field.check_found()


def _to_python(column: Any) -> list[object]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        values: list[bytes | None] = column.cast("binary").to_pylist()
        return [None if v is None else v.decode("utf-8", "surrogateescape") for v in values]


@contextmanager
def _open_seekable(path: Path, compression: Compression, name: str) -> Generator[BinaryIO]:
    """Parquet is read from its end: a compressed file is first unpacked to a temporary one."""
    with ExitStack() as stack:
        try:
            if compression:
                file: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
                file.writelines(read_blocks(path, compression, name))
            else:
                file = stack.enter_context(path.open("rb"))
            size = file.seek(0, 2)
            file.seek(0)
        except OSError as error:
            raise CorpusError(f"{name} cannot be read: {error.strerror}.") from None
        if not size:
            raise UnreadableError("empty file", f"{name} is empty: nothing to train on.")
        yield file
