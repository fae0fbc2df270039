"""Files of vectors: ``.npy`` and ``.parquet``, written batch by batch.

N rows, D width.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import InputError, make_line
from maskwright.extras import import_extra
from maskwright.files import check_new_file, replacing_file

Vectors = NDArray[np.float32]
# A function that appends ids (none: empty), texts and their vectors [n, D] to a file.
AddRows = Callable[[list[str], list[str], Vectors], None]


def check_out(path: Path) -> None:
    """Raise InputError or MissingPackageError if vectors could not be written to a path."""
    if path.suffix not in _FORMATS:
        raise InputError(f"--out = {path} must end in {' or '.join(_FORMATS)}")
    check_new_file(path)
    if path.suffix == ".parquet":
        _import_arrow()


@contextmanager
def writing_vectors(path: Path, width: int, has_ids: bool = False) -> Generator[AddRows]:
    """Yield a function that appends rows to a file, which is created when the context succeeds.

    With ids, ``NAME.npy`` has a file ``NAME.ids.txt`` beside it, an id a line.
    """
    write = _FORMATS[path.suffix]
    with ExitStack() as stack:
        add = stack.enter_context(write(stack.enter_context(replacing_file(path)), width, has_ids))
        if not (has_ids and path.suffix == ".npy"):
            yield add
            return
        names = stack.enter_context(replacing_file(path.with_suffix(".ids.txt")))
        file = stack.enter_context(names.open("w", encoding="utf-8", errors="replace"))

        def add_with_ids(ids: list[str], texts: list[str], vectors: Vectors) -> None:
            add(ids, texts, vectors)
            file.writelines(f"{make_line(one)}\n" for one in ids)

        yield add_with_ids


@contextmanager
def _writing_npy(path: Path, width: int, has_ids: bool) -> Generator[AddRows]:
    with path.open("wb") as file:
        num_rows = 0
        _write_header(file, num_rows, width)
        start = file.tell()

        def add(ids: list[str], texts: list[str], vectors: Vectors) -> None:
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
def _writing_parquet(path: Path, width: int, has_ids: bool) -> Generator[AddRows]:
    arrow, parquet = _import_arrow()
    kind = arrow.list_(arrow.float32(), width)
    string = arrow.string()
    named = [("id", string)] if has_ids else []
    schema = arrow.schema([*named, ("text", string), ("embedding", kind)])
    with parquet.ParquetWriter(path, schema) as writer:

        def add(ids: list[str], texts: list[str], vectors: Vectors) -> None:
            column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), type=kind)
            # Lone surrogates, as in some file names, are replaced by question marks.
            columns = [
                arrow.array([one.encode(errors="replace").decode() for one in each], string)
                for each in ((ids, texts) if has_ids else (texts,))
            ]
            writer.write_table(arrow.table([*columns, column], schema))

        yield add


def _import_arrow() -> tuple[Any, Any]:
    needed_by = "--out *.parquet"
    return (
        import_extra("pyarrow", "parquet", needed_by),
        import_extra("pyarrow.parquet", "parquet", needed_by),
    )


_FORMATS: dict[str, Callable[[Path, int, bool], AbstractContextManager[AddRows]]] = {
    ".npy": _writing_npy,
    ".parquet": _writing_parquet,
}
