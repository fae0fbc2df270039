"""Files of vectors, written incrementally: ``.npy`` or ``.parquet``."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import InputError
from maskwright.extras import import_extra
from maskwright.files import check_new_file, replacing_file

Vectors = NDArray[np.float32]
# A function that appends texts and their vectors [n, D] to a file.
AddRows = Callable[[list[str], Vectors], None]


def check_out(path: Path) -> None:
    """Raise, before the vectors are computed, if a path cannot be written.

    Raises:
        InputError: the format is unknown, or `check_new_file` raises.
        MissingPackageError: pyarrow is missing.
    """
    if path.suffix not in _FORMATS:
        raise InputError(f"--out = {path} must end in {' or '.join(_FORMATS)}")
    check_new_file(path)
    if path.suffix == ".parquet":
        _import_arrow()


@contextmanager
def writing_vectors(path: Path, width: int) -> Generator[AddRows]:
    """Yield a function that appends rows to a file, which is created when the context succeeds."""
    write = _FORMATS[path.suffix]
    with replacing_file(path) as temporary, write(temporary, width) as add:
        yield add


@contextmanager
def _writing_npy(path: Path, width: int) -> Generator[AddRows]:
    with path.open("wb") as file:
        num_rows = 0
        _write_header(file, num_rows, width)
        start = file.tell()

        def add(texts: list[str], vectors: Vectors) -> None:
            nonlocal num_rows
            num_rows += len(texts)
            file.write(vectors.astype("<f4", copy=False).tobytes())

        yield add
        file.seek(0)
        _write_header(file, num_rows, width)
        # NumPy pads the header so that any number of rows fits.
        assert file.tell() == start


def _write_header(file: BinaryIO, num_rows: int, width: int) -> None:
    fields = {"descr": "<f4", "fortran_order": False, "shape": (num_rows, width)}
    np.lib.format.write_array_header_1_0(file, fields)


@contextmanager
def _writing_parquet(path: Path, width: int) -> Generator[AddRows]:
    arrow, parquet = _import_arrow()
    kind = arrow.list_(arrow.float32(), width)
    schema = arrow.schema([("text", arrow.string()), ("embedding", kind)])
    with parquet.ParquetWriter(path, schema) as writer:

        def add(texts: list[str], vectors: Vectors) -> None:
            column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), type=kind)
            # Lone surrogates, as in some file names, are replaced by question marks.
            valid = [text.encode(errors="replace").decode() for text in texts]
            writer.write_table(arrow.table([arrow.array(valid, arrow.string()), column], schema))

        yield add


def _import_arrow() -> tuple[Any, Any]:
    needed_by = "--out *.parquet"
    return (
        import_extra("pyarrow", "parquet", needed_by),
        import_extra("pyarrow.parquet", "parquet", needed_by),
    )


_FORMATS: dict[str, Callable[[Path, int], AbstractContextManager[AddRows]]] = {
    ".npy": _writing_npy,
    ".parquet": _writing_parquet,
}
