import gzip
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
    with pytest.raises(CorpusError, match="its values are no strings"):
        read_all(make(tmp_path / "x.parquet", text=[1, 2]))


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = make(tmp_path / "x.parquet", text=["words"] * 1_000)
    whole = Path(path).read_bytes()
    write(tmp_path / "x.parquet", whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=r"x.parquet is no readable Parquet file: "):
        read_all(path)
    write(tmp_path / "x.parquet", b"")
    with pytest.raises(CorpusError, match="is empty"):
        read_all(path)


def test_without_pyarrow_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_module(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    path = make(tmp_path / "x.parquet", text=["words"])
    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(MissingPackageError, match=r"Run: pip install 'maskwright\[parquet\]'"):
        read_all(path)
