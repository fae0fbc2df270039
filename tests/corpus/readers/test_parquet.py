import contextlib
import gzip
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.readers.parquet import (
    PageError,
    StructReader,
    find_largest_page,
    read_footer,
)
from maskwright.errors import CorpusError, MissingPackageError
from tests.corpus.helpers import read_all, write

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


def make(path: Path, **columns: object) -> str:
    parquet.write_table(arrow.table(columns), path, row_group_size=70)
    return str(path)


def test_the_column_is_read_in_order(tmp_path: Path) -> None:
    texts = [f"document {number}" for number in range(500)]
    path = make(tmp_path / "x.parquet", id=list(range(500)), text=texts)
    assert read_all(path) == texts
    write(tmp_path / "x.parquet.gz", gzip.compress(Path(path).read_bytes()))
    assert read_all(f"{path}.gz") == texts


@pytest.mark.parametrize("kind", ["large_string", "string_view", "dictionary"])
def test_every_kind_of_string(tmp_path: Path, kind: str) -> None:
    column = arrow.array(["a", None, "b"])
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
    assert read_all(make(tmp_path / "x.parquet", text=column)) == ["a", "b"]


def test_invalid_utf8_stays_visible(tmp_path: Path) -> None:
    column = arrow.array([b"good", b"b\xe9d", None], arrow.binary()).view(arrow.string())
    assert read_all(make(tmp_path / "x.parquet", text=column)) == ["good", "b\udce9d"]


def test_a_missing_column_names_those_there_are(tmp_path: Path) -> None:
    path = make(tmp_path / "x.parquet", title=["a"], body=["b"])
    with pytest.raises(CorpusError, match=r"has no field text; it has: title, body\."):
        read_all(path)
    assert read_all(path, text_field="body") == ["b"]


def test_a_column_of_numbers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no text in its field text"):
        read_all(make(tmp_path / "x.parquet", text=[1, 2]))


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = make(tmp_path / "x.parquet", text=["words"] * 1_000)
    whole = Path(path).read_bytes()
    write(tmp_path / "x.parquet", whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=r"x.parquet cannot be read as Parquet: "):
        read_all(path)
    write(tmp_path / "x.parquet", b"")
    with pytest.raises(CorpusError, match="is empty"):
        read_all(path)


def test_without_pyarrow_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "x.parquet", text=["words"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"Run: pip install .*\[parquet\]'"):
        read_all(path)


def pack(texts: Sequence[str | None], **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    table = arrow.table({"id": list(range(len(texts))), "text": texts})
    parquet.write_table(table, file, **options)
    return file


def find_largest(file: io.BytesIO, column: int = 1) -> int:
    return find_largest_page(file, read_footer(file), column)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_the_largest_page_is_found(compression: str, version: str, use_dictionary: bool) -> None:
    texts = [f"{n} " * 50 for n in range(300)]
    texts[123] = "long " * 40_000
    file = pack(
        [*texts, None],
        compression=compression,
        data_page_version=version,
        use_dictionary=use_dictionary,
        data_page_size=1_000,
        write_batch_size=1,
        row_group_size=90,
        dictionary_pagesize_limit=1 << 30,
    )
    group = parquet.ParquetFile(file).metadata.row_group(1).column(1)
    largest = find_largest(file)
    # The row group with the long text holds one page with it, and pages or values beside it.
    assert 200_000 < largest < group.total_uncompressed_size
    assert find_largest(file, column=0) < 2_000  # and not what lies next to it


def test_one_page_is_all_of_its_column_but_the_header() -> None:
    file = pack(["words " * 1_000], use_dictionary=False, compression="zstd")
    whole = parquet.ParquetFile(file).metadata.row_group(0).column(1).total_uncompressed_size
    assert 0 < whole - find_largest(file) < 30_000  # statistics quote the value


def test_long_headers_are_read_to_their_end() -> None:
    texts = ["é" * 20_000, "ü" * 20_000]
    file = pack(texts, use_dictionary=False, compression="zstd", write_page_index=False)
    assert find_largest(file) > 80_000


@pytest.mark.parametrize("length", [0, 3, 8, 100])
def test_what_is_no_parquet_file(length: int) -> None:
    with pytest.raises(PageError, match="it has no footer"):
        read_footer(io.BytesIO(b"x" * length))


def test_a_footer_of_gigabytes() -> None:
    ending = (17 << 20).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(PageError, match="its footer has more than 16 MB"):
        read_footer(io.BytesIO(bytes(17 << 20) + ending))


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(PageError, match="a row group lacks the column"):
        find_largest(pack(["words"]), column=2)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_stepped_through_or_refused(content: bytes) -> None:
    reader = StructReader(content)
    try:
        reader.skip(12)  # a struct
    except (PageError, IndexError):
        return
    assert 0 < reader.place <= len(content)


@given(cut=st.integers(0, 2_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_read_or_refused(cut: int, bit: int) -> None:
    content = bytearray(pack(["words", "more words"] * 20, row_group_size=7).getvalue())
    content[cut % len(content)] ^= 1 << bit
    file = io.BytesIO(bytes(content))
    with contextlib.suppress(PageError):
        assert find_largest(file) >= 0
