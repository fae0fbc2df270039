"""Parquet: one column of strings, read a few rows at a time (extra `parquet`).

A file of a kilobyte can ask for gigabytes: by a page that unpacks to them, or by one long value
that a million rows repeat. So the pages are looked at first, and decide how many rows are read
at a time.
"""

import importlib
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.corpus.formats import Compression
from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.expansion import Expansion
from maskwright.corpus.readers.fields import MAX_RECORD_CHARACTERS, TextField
from maskwright.corpus.readers.pages import PageError, largest_page, read_footer
from maskwright.corpus.readers.signatures import check_signature
from maskwright.corpus.readers.unreadable import UnreadableError
from maskwright.errors import CorpusError
from maskwright.extras import import_extra

MAX_PAGE_BYTES = 256 << 20

_HEAD_BYTES = 1 << 12
_BATCH_ROWS = 64
_BATCH_BYTES = 64 << 20
_ROW_BYTES = 64  # a row counts so much, even if there is nothing in it
# What else pyarrow raises for damaged files, beside errors of its own.
_DAMAGE = (OSError, ValueError, ArithmeticError, LookupError, RuntimeError)
_BUFFER_BYTES = 1 << 20  # reads a column chunk piecemeal, not whole


def read_parquet(
    path: Path,
    compression: Compression,
    field: TextField,
    counts: Counter[str],
    advance: Callable[[int], None] = lambda position: None,
) -> Iterator[str]:
    """The texts of one column, in the order of the rows; too long ones are counted.

    Args:
        advance: called with how many bytes of the file the rows so far are about.

    Raises:
        CorpusError: pyarrow is missing, the file is damaged, asks for too much memory, or does
            not have the column.
        UnreadableError: the file is empty.
    """
    arrow: Any = import_extra("pyarrow", "parquet", field.source)
    parquet: Any = import_extra("pyarrow.parquet", "parquet", field.source)
    with _open_seekable(path, compression, field.source) as (file, num_bytes):
        try:
            footer = read_footer(file)
            table = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            columns = [str(name) for name in table.schema_arrow.names]
            field.check_columns(columns)
            rows = _choose_rows(arrow, table, file, footer, field)
            expansion = Expansion(field.source)
            num_read, stored = 0, path.stat().st_size
            for batch in table.iter_batches(rows, columns=[field.name]):
                num_read += batch.num_rows
                advance(stored * num_read // max(table.metadata.num_rows, 1))
                column = _unfold(arrow, batch.column(0))
                expansion.add(_ROW_BYTES * len(column) + column.nbytes, num_bytes)
                for value in _read_values(arrow, column, counts):
                    if (text := field.pick(value, columns)) is not None:
                        yield text
        except (*_DAMAGE, arrow.ArrowException, PageError) as error:
            reason = " ".join(str(error).split())
            raise CorpusError(f"{field.source} is no readable Parquet file: {reason}") from None
    field.check_found()


def _choose_rows(arrow: Any, table: Any, file: BinaryIO, footer: bytes, field: TextField) -> int:
    """How many rows to read at a time so that little memory is needed whatever is in them."""
    kind = table.schema_arrow.field(field.name).type
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    if kind not in (arrow.string(), arrow.large_string(), arrow.string_view()):
        raise field.no_text()
    leaves = [table.metadata.schema.column(n).path for n in range(table.metadata.num_columns)]
    if leaves.count(field.name) != 1:
        raise PageError(f"the schema is ambiguous about {field.name}")
    largest = largest_page(file, footer, leaves.index(field.name))
    if largest > MAX_PAGE_BYTES:
        raise CorpusError(
            f"{field.source} has a page of {largest >> 20} MB in its column {field.name}, more than"
            f" the {MAX_PAGE_BYTES >> 20} MB that are read at once. Write it again with smaller"
            " pages (pyarrow: write_batch_size=16)."
        )
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(largest, 1)))


def _unfold(arrow: Any, column: Any) -> Any:
    return column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column


def _read_values(arrow: Any, column: Any, counts: Counter[str]) -> list[str | None]:
    if column.nbytes > MAX_RECORD_CHARACTERS:
        column = _drop_long(column.cast(arrow.large_string()), counts)
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        values: list[bytes | None] = column.cast("binary").to_pylist()
        return [None if v is None else v.decode("utf-8", "surrogateescape") for v in values]


def _drop_long(column: Any, counts: Counter[str]) -> Any:
    """A string in Python may take four times its bytes, so long values do not become one."""
    compute: Any = importlib.import_module("pyarrow.compute")
    fits = compute.less_equal(compute.binary_length(column), MAX_RECORD_CHARACTERS)
    counts["record too long"] += len(column) - column.null_count - (compute.sum(fits).as_py() or 0)
    return column.filter(fits, null_selection_behavior="emit_null")


@contextmanager
def _open_seekable(
    path: Path, compression: Compression, name: str
) -> Generator[tuple[BinaryIO, int]]:
    """The file and its size. Parquet is read from its end: a compressed file is first unpacked to
    a temporary one."""
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
            raise UnreadableError("empty file", f"{name} is empty: nothing to train on.")
        if not head.startswith(b"PAR1"):
            check_signature(head, name)
        yield file, size
