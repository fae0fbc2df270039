import contextlib
import gzip
import io
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.corpus.readers.parquet import opening_parquet
from maskwright.corpus.sources import find_sources
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


def test_rows_of_long_texts_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskwright.corpus.readers.parquet._BATCH_BYTES", 50_000)
    texts = [noise(10_000, number) for number in range(20)]
    [source] = find_sources([make(tmp_path / "x.parquet", text=texts)])
    with opening_parquet(source) as table:
        assert [len(batch) for batch in table.read(["text"])] == [4] * 5
    path = make(tmp_path / "x.parquet", text=[noise(30_000), *["short"] * 69])
    [source] = find_sources([path])
    with opening_parquet(source) as table:
        assert [len(batch) for batch in table.read(["text"])] == [64, 6]


def noise(length: int, seed: int = 0) -> str:
    return "".join(Random(seed).choices("abcdefgh", k=length))


@settings(max_examples=200)
@given(number=st.integers(0, 2**32 - 1))
def test_a_flipped_bit_is_read_or_refused(number: int) -> None:
    file, draw = io.BytesIO(), Random(number)
    parquet.write_table(arrow.table({"text": ["words", "more words"] * 20}), file, row_group_size=7)
    content = bytearray(file.getvalue())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    with TemporaryDirectory() as folder, contextlib.suppress(CorpusError):
        read_all(write(Path(folder) / "x.parquet", bytes(content)))
