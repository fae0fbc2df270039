"""Readers of columns of text: Hugging Face datasets and Parquet files."""

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.corpus.documents import Reading, Source, UnreadableError, expand_home
from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS, TextField
from maskwright.corpus.unpack import read_unpacked
from maskwright.errors import CorpusError
from maskwright.extras import import_extra

_SPLIT = "train"


@dataclass(frozen=True, slots=True)
class HubName:
    """A parsed dataset name; `config` and `field` are empty if the name has none."""

    path: str
    config: str
    field: str

    @property
    def folder(self) -> Path | None:
        """The local folder of this name; None if there is none."""
        folder = expand_home(self.path)
        return folder if folder.is_dir() else None


def parse_hub_name(name: str) -> HubName:
    """Parse ``hf:NAME[:CONFIG][#FIELD]``; raise CorpusError if the name is empty."""
    rest, _, field = name.removeprefix("hf:").partition("#")
    local = rest.startswith(("/", ".", "~"))
    path, config = (rest, "") if local else rest.partition(":")[::2]
    if not path:
        raise CorpusError(f"{name} names no dataset. Write hf:NAME[:CONFIG][#FIELD].")
    return HubName(path, config, field)


def read_hub(reading: Reading) -> Iterator[str]:
    """Yield the texts of a dataset's train split in order.

    Raises:
        CorpusError: the dataset cannot be found or read, or lacks the field.
        MissingPackageError: `datasets` is not installed.
    """
    name = reading.source.name
    parsed = parse_hub_name(name)
    datasets: Any = import_extra("datasets", "hub", name)
    field = TextField(reading, parsed.field)
    try:
        rows = _load(datasets, parsed)
        columns: list[str] | None = getattr(rows, "column_names", None)
        if columns is not None:
            field.check_columns(columns)
            rows = rows.select_columns([field.name])
        for row in rows:
            if (text := field.pick(row.get(field.name), row)) is not None:
                yield text
    except CorpusError:
        raise
    except Exception as error:  # damaged datasets raise many kinds of errors
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(f"{name} cannot be read: {reason}") from None
    field.check_found()


def _load(datasets: Any, name: HubName) -> Any:
    folder = name.folder
    if folder is None and name.path.startswith(("/", ".", "~")):
        raise FileNotFoundError(f"there is no folder {expand_home(name.path)}")
    if folder and (folder / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(folder))
        if _SPLIT not in splits:
            raise ValueError(f"it has no split {_SPLIT} but {', '.join(splits)}")
        return splits[_SPLIT]
    if folder and (folder / "state.json").is_file():
        return datasets.load_from_disk(str(folder))
    where = str(folder or name.path)
    if folder and any(character in str(folder.resolve()) for character in "*?["):
        rule = "the library datasets takes its path for a pattern"
        raise ValueError(f"{rule}. Rename the folder, or give it without hf:")
    return datasets.load_dataset(where, name.config or None, split=_SPLIT, streaming=True)


_BUFFER_BYTES = 1 << 20  # with a buffer, pyarrow reads a column chunk in parts
_BATCH_ROWS, _BATCH_BYTES = 64, 64 << 20
# Errors that pyarrow raises for damaged files, besides its own.
_DAMAGE = (OSError, ValueError, ArithmeticError, LookupError, RuntimeError)


def read_batches(
    file: Any, columns: Sequence[str], groups: Sequence[int] | None = None
) -> Iterator[Any]:
    """Yield the rows of row groups, by default all, in pyarrow's record batches of about 64 MB."""
    groups = range(file.num_row_groups) if groups is None else groups
    infos = [file.metadata.row_group(number) for number in groups]
    largest = max((info.total_byte_size / max(info.num_rows, 1) for info in infos), default=0)
    rows = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(largest, 1))))
    return file.iter_batches(rows, groups, columns=columns)


@contextmanager
def opening_parquet(source: Source) -> Generator[Any]:
    """Open a file with pyarrow; a compressed one is unpacked first: Parquet is read from its end.

    Raise CorpusError if it, or a part that is read in the block, is damaged; UnreadableError if it
    is empty.
    """
    assert source.path is not None, "only files are Parquet"
    arrow: Any = import_extra("pyarrow", "parquet", source.name)
    parquet: Any = import_extra("pyarrow.parquet", "parquet", source.name)
    with ExitStack() as stack:
        try:
            if source.compression:
                file: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
                file.writelines(read_unpacked(source.path, source.compression, source.name))
            else:
                file = stack.enter_context(source.path.open("rb"))
            is_empty = not file.seek(0, 2)
        except OSError as error:
            raise CorpusError(f"{source.name} cannot be read: {error.strerror}.") from None
        if is_empty:
            raise UnreadableError("empty file", f"{source.name} is empty: it has no text.")
        try:
            yield parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except (*_DAMAGE, arrow.ArrowException) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise CorpusError(
                f"{source.name} cannot be read as Parquet: {reason}. Fetch or copy it again."
            ) from None


def read_parquet(reading: Reading) -> Iterator[str]:
    """Yield the texts of one column in the order of the rows; too long ones are counted.

    Raises:
        CorpusError: as `opening_parquet`, or the column is missing.
        MissingPackageError, UnreadableError: as `opening_parquet`.
    """
    source, field = reading.source, TextField(reading)
    with opening_parquet(source) as table:
        columns: list[str] = table.schema_arrow.names
        field.check_columns(columns)
        kind = str(table.schema_arrow.field(columns.index(field.name)).type)
        if not kind.removeprefix("dictionary<values=").startswith(("string", "large_string")):
            raise field.no_text()
        groups = range(source.span.start, source.span.end) if source.span else None
        for batch in read_batches(table, [field.name], groups):
            for content in map(_read_content, batch.column(0)):
                size = 0 if content is None else len(content)
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
