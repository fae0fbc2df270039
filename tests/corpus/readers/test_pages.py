"""The page headers that we read against what pyarrow says of its own files."""

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.readers.pages import PageError, largest_page, read_footer
from maskwright.corpus.readers.thrift import STRUCT, StructReader, ThriftError

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


def write(texts: Sequence[str | None], **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    table = arrow.table({"id": list(range(len(texts))), "text": texts})
    parquet.write_table(table, file, **options)
    return file


def read(file: io.BytesIO, column: int = 1) -> int:
    return largest_page(file, read_footer(file), column)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_the_largest_page_is_found(compression: str, version: str, use_dictionary: bool) -> None:
    texts = [f"{n} " * 50 for n in range(300)]
    texts[123] = "long " * 40_000
    file = write(
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
    largest = read(file)
    # The row group with the long text holds one page with it, and pages or values beside it.
    assert 200_000 < largest < group.total_uncompressed_size
    assert read(file, column=0) < 2_000  # and not what lies next to it


def test_one_page_is_all_of_its_column_but_the_header() -> None:
    file = write(["words " * 1_000], use_dictionary=False, compression="zstd")
    whole = parquet.ParquetFile(file).metadata.row_group(0).column(1).total_uncompressed_size
    assert 0 < whole - read(file) < 30_000  # statistics quote the value


def test_long_headers_are_read_to_their_end() -> None:
    texts = ["é" * 20_000, "ü" * 20_000]
    file = write(texts, use_dictionary=False, compression="zstd", write_page_index=False)
    assert read(file) > 80_000


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
        read(write(["words"]), column=2)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_stepped_through_or_refused(content: bytes) -> None:
    reader = StructReader(content)
    try:
        reader.skip(STRUCT)
    except (ThriftError, IndexError):
        return
    assert 0 < reader.place <= len(content)


@given(cut=st.integers(0, 2_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_read_or_refused(cut: int, bit: int) -> None:
    content = bytearray(write(["words", "more words"] * 20, row_group_size=7).getvalue())
    content[cut % len(content)] ^= 1 << bit
    file = io.BytesIO(bytes(content))
    with contextlib.suppress(PageError):
        assert read(file) >= 0
