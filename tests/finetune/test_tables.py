import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from maskwright.finetune.tables import parse_columns, read_columns


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content, encoding="utf-8")
    return path


def read(path: Path, header: bool | None = None, **columns: str) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_columns(path, parse_columns(columns), header)]


ROWS = [{"text": 'He said "no".', "label": "1"}, {"text": "a, b", "label": "0"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", 'label\ttext\n1\tHe said "no".\n\n0\ta, b\n'),
        ("a.tsv.gz", 'label\ttext\r\n1\tHe said "no".\r\n0\ta, b\r\n'),
        ("a.csv", 'id,text,label\n7,"He said ""no"".",1\n8,"a, b",0\n'),
        ("a.jsonl", "\n".join(json.dumps({**row, "more": 1}) for row in ROWS)),
    ],
)
def test_columns_by_name(name: str, content: str, tmp_path: Path) -> None:
    assert read(write(tmp_path, name, content), text="text", label="label") == ROWS


def test_columns_by_position_have_no_header(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "gj04\t1\t\tIt is.\ngj04\t0\t*\tIs it is.\n")
    rows = [{"text": "It is.", "label": "1"}, {"text": "Is it is.", "label": "0"}]
    assert read(path, text="3", label="1") == rows
    assert read(path, header=True, text="3", label="1") == rows[1:]


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"s": ["x", "y"], "score": [0.5, 2.0]})
    parquet.write_table(table, tmp_path / "a.parquet")
    expected = [{"text": "x", "label": 0.5}, {"text": "y", "label": 2.0}]
    assert read(tmp_path / "a.parquet", text="s", label="score") == expected
    assert read(tmp_path / "a.parquet", text="0", label="1") == expected


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.tsv", "x\ty\n1\t2\n", {"text": "z"}, r"a\.tsv has no column z for text: it has x, y"),
        ("a.tsv", "x\ty\n1\n", {"text": "y"}, r"a\.tsv:2 has 1 columns, too few for text = y"),
        ("a.tsv", "1\t2\n", {"text": "2"}, r"a\.tsv has 2 columns, but text = 2"),
        ("a.csv", 'x\n"open\n', {"text": "x"}, r"a\.csv:2 cannot be read"),
        ("a.jsonl", '{"x": 1}\n[]\n', {"text": "x"}, r"a\.jsonl:2 is not a JSON object"),
        ("a.jsonl", '{"x": 1}\n', {"text": "y"}, r"a\.jsonl:1 has no y for text: it has x"),
        ("a.txt", "x", {"text": "y"}, r"a\.txt is no table"),
        ("a.tsv", "", {"text": "y"}, "empty"),
    ],
)
def test_what_is_wrong_is_named(
    name: str, content: str, columns: dict[str, str], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(CorpusError, match=message):
        list(read_columns(path, parse_columns(columns)))


def test_rows_with_too_few_columns_are_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    lines = ["id\ttext\tlabel", "1\tbroken", "off\t0", "2\twhole\t1", "3\twhole\t0\tmore"]
    path = write(tmp_path, "a.tsv", "\n".join(lines))
    columns, skipped = parse_columns({"text": "text", "label": "label"}), Counter[str]()
    rows = [dict(row.values) for row in read_columns(path, columns, skipped=skipped)]
    assert rows == [{"text": "whole", "label": "1"}, {"text": "whole", "label": "0"}]
    assert skipped == {str(path): 2}


def test_without_a_header_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="must be a position"):
        read(write(tmp_path, "a.tsv", "1\t2\n"), header=False, text="x")


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes("text\nplain\nné\n".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a\.tsv:3 is not UTF-8"):
        read(path, text="text")


def test_a_damaged_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.parquet").write_bytes(b"this is no parquet file")
    with pytest.raises(CorpusError, match=r"a\.parquet cannot be read: [^\n]*[^.]\.$"):
        read(tmp_path / "a.parquet", text="s", label="score")
