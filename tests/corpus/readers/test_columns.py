import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from maskwright.corpus.readers.columns import HubName, opening_parquet, parse_hub_name, read_batches
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
    monkeypatch.setattr("maskwright.corpus.readers.columns._BATCH_BYTES", 50_000)
    texts = [noise(10_000, number) for number in range(20)]
    [source] = find_sources([make(tmp_path / "x.parquet", text=texts)])
    with opening_parquet(source) as table:
        assert [len(batch) for batch in read_batches(table, ["text"])] == [4] * 5
    path = make(tmp_path / "x.parquet", text=[noise(30_000), *["short"] * 69])
    [source] = find_sources([path])
    with opening_parquet(source) as table:
        assert [len(batch) for batch in read_batches(table, ["text"])] == [64, 6]


def noise(length: int, seed: int = 0) -> str:
    return "".join(Random(seed).choices("abcdefgh", k=length))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "hf:wikimedia/wikipedia:20231101.en#text",
            HubName("wikimedia/wikipedia", "20231101.en", "text"),
        ),
        ("hf:wikitext", HubName("wikitext", "", "")),
        ("hf:owner/set#body", HubName("owner/set", "", "body")),
        ("hf:/data/a:b#text", HubName("/data/a:b", "", "text")),
    ],
)
def test_names(name: str, expected: HubName) -> None:
    assert parse_hub_name(name) == expected


@pytest.mark.parametrize("name", ["hf:", "hf:#text", "hf::config"])
def test_a_name_without_a_dataset_is_an_error(name: str) -> None:
    with pytest.raises(CorpusError, match="names no dataset"):
        parse_hub_name(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [{"id": n, "text": f"document {n}"} for n in range(10)] + [{"id": 10, "text": None}]
    lines = "\n".join(json.dumps(row) for row in rows)
    write(tmp_path / "set" / "train.jsonl", lines)
    return tmp_path / "set"


def test_a_local_dataset_folder_is_streamed(folder: Path) -> None:
    counts: Counter[str] = Counter()
    texts = [f"document {n}" for n in range(10)]
    assert read_all(f"hf:{folder}#text", counts) == texts
    assert counts == {"missing field text": 1}
    assert read_all(f"hf:{folder}") == texts


def test_a_saved_dataset_is_read(folder: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"body": ["one", "two"]})
    rows.save_to_disk(str(folder / "one"))
    datasets.DatasetDict(train=rows).save_to_disk(str(folder / "several"))
    datasets.DatasetDict(test=rows).save_to_disk(str(folder / "other"))
    assert read_all(f"hf:{folder / 'one'}#body") == ["one", "two"]
    assert read_all(f"hf:{folder / 'several'}#body") == ["one", "two"]
    with pytest.raises(CorpusError, match="cannot be read: it has no split train but test"):
        read_all(f"hf:{folder / 'other'}#body")


def test_a_name_with_brackets_is_no_pattern(folder: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    saved = folder / "saved[1]"
    datasets.Dataset.from_dict({"text": ["one"]}).save_to_disk(str(saved))
    assert read_all(f"hf:{saved}") == ["one"]
    with pytest.raises(CorpusError, match=r"\[a\] cannot be read: .* give it without hf:"):
        read_all(f"hf:{folder.rename(folder.with_name('[a]'))}")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(CorpusError, match="cannot be read: there is no folder"):
        read_all(f"hf:{tmp_path}/nowhere#text")
