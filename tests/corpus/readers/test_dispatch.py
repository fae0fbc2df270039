import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Reading
from maskwright.corpus.readers.text import read_text
from maskwright.corpus.sources import (
    FORMATS,
    Format,
    find_sources,
    read_source,
    recognize_name,
    stream_corpus,
)
from maskwright.corpus.table_files import read_columns
from maskwright.errors import CorpusError
from tests.corpus.helpers import read_all, write

CONTENTS = {
    ".txt": "one\n\ntwo\n",
    ".jsonl": '{"text": "one"}\n{"text": "two"}\n',
    ".csv": "text,n\none,1\ntwo,2\n",
    ".tsv": "n\ttext\n1\tone\n2\ttwo\n",
}


@pytest.mark.parametrize("suffix", CONTENTS)
@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_every_format_in_every_compression(tmp_path: Path, suffix: str, compression: str) -> None:
    content = CONTENTS[suffix].encode()
    compressed = {
        "": content,
        ".gz": gzip.compress(content),
        ".bz2": bz2.compress(content),
        ".xz": lzma.compress(content),
        ".zst": zstandard.ZstdCompressor().compress(content),
    }[compression]
    path = write(tmp_path / f"x{suffix}{compression}", compressed)
    assert read_all(path) == ["one", "two"]


def test_ids_count_the_documents_of_a_file(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "x.txt", "one\n\ntwo\n")
    (source,) = find_sources([str(tmp_path)])
    documents = list(read_source(source, CorpusConfig(), Counter()))
    assert [document.id for document in documents] == ["sub/x.txt:1", "sub/x.txt:2"]
    assert documents[0].source == str(tmp_path / "sub" / "x.txt")


def test_standard_input_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\ntwo\n")))
    assert read_all("-") == ["one", "two"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(CorpusError, match=r"^standard input is empty: it has no text\.$"):
        read_all("-")


OBJECTS = '\n{"text": "one"}\n{"text": "two"}\n'


@pytest.mark.parametrize("name", ["x.log", "x", "x.log.gz"])
@pytest.mark.parametrize("documents", ["auto", "line", "blank_line", "file"])
def test_json_lines_of_unknown_suffix_are_refused(
    tmp_path: Path, name: str, documents: str
) -> None:
    content = gzip.compress(OBJECTS.encode()) if name.endswith("gz") else OBJECTS
    path = write(tmp_path / name, content)
    for given in (path, f"{tmp_path}/*"):
        with pytest.raises(CorpusError, match=rf"{name} begins with a JSON object, .* \.jsonl"):
            read_all(given, documents=documents)


def test_what_only_resembles_json_lines_is_plain_text(tmp_path: Path) -> None:
    for name, content in (
        ("a.txt", '{"text": "one"}'),
        ("a.log", "{one}"),
        ("b.log", 'one\n{"text": "two"}'),
        ("c.log", '["one"]'),
    ):
        assert read_all(write(tmp_path / name, content)) == content.split("\n")


def test_matches_of_a_pattern_without_text_are_counted(tmp_path: Path) -> None:
    for name, content in (("a.txt", ""), ("b.txt", b"%PDF-1.7"), ("c.txt", "words")):
        write(tmp_path / name, content)
    counts: Counter[str] = Counter()
    assert read_all(f"{tmp_path}/*.txt", counts) == ["words"]
    assert counts == {"empty file": 1, "binary file": 1}
    with pytest.raises(CorpusError, match=r"nothing is left to train on \(empty file: 1\)"):
        list(stream_corpus([f"{tmp_path}/a*"], CorpusConfig(), Counter()))
    with pytest.raises(CorpusError, match=r"a\.txt is empty"):
        read_all(str(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", ("plain", "")),
        ("A.TXT.GZ", ("plain", ".gz")),
        ("20231101.en.jsonl.zst", ("jsonl", ".zst")),
        ("part-0.parquet", ("parquet", "")),
        ("notes.md", ("markdown", "")),
        ("table.tsv.xz", ("tsv", ".xz")),
        ("archive.gz", (None, ".gz")),
        ("README", (None, "")),
        ("photo.jpg", (None, "")),
    ],
)
def test_a_name_tells_kind_and_compression(name: str, expected: tuple[str | None, str]) -> None:
    assert recognize_name(Path(name)) == expected


@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_json_counts_if_it_is_named(compression: str) -> None:
    path = Path(f"dump.json{compression}")
    assert recognize_name(path) == (None, compression)
    assert recognize_name(path, named=True) == ("jsonl", compression)


def test_a_format_is_added_by_one_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_toy(reading: Reading) -> Iterator[str]:
        for word in "".join(read_text(reading)).split("+"):
            reading.counts["toy word"] += 1
            yield word

    monkeypatch.setitem(FORMATS, "toy", Format(read_toy, (".toy",)))
    write(tmp_path / "a.toy", "one+two")
    write(tmp_path / "b.TOY.gz", gzip.compress(b"three"))
    write(tmp_path / "c.txt", "four")
    counts: Counter[str] = Counter()
    config = CorpusConfig(valid_fraction=0.0)
    documents = list(stream_corpus([str(tmp_path)], config, counts))
    assert [document.text for document in documents] == ["one", "two", "three", "four"]
    assert documents[1].id == "a.toy:2"
    assert counts == {"toy word": 3}


LOOK_LIKE_TYPES = (
    *("2024-01-01", "007", "a: timestamp[s]", "1e5", "true", "null", "NaN", "1_000", "-0", "12:30"),
    *("2024-01-01T00:00:00Z", "{}", "[1]", '"quoted"', "1,5", "=1+1"),
)


@pytest.mark.parametrize(
    "texts", [LOOK_LIKE_TYPES, LOOK_LIKE_TYPES[:1], LOOK_LIKE_TYPES[1:2], LOOK_LIKE_TYPES[5:7]]
)
def test_texts_that_look_like_other_types_are_read_letter_by_letter(
    texts: tuple[str, ...], tmp_path: Path
) -> None:
    paths = [tmp_path / f"x.{kind}" for kind in ("jsonl", "csv", "tsv", "parquet")]
    paths[0].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for path, delimiter in zip(paths[1:3], ",\t", strict=True):
        with path.open("w", newline="") as file:
            rows = csv.writer(file, delimiter=delimiter)
            rows.writerows([("id", "text"), *enumerate(texts)])
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": list(texts)}), paths[3])
    for path in paths:
        assert read_all(str(path)) == list(texts), path.suffix
        labeled = read_columns(path, {"sentence1": "text", "label": "text"})
        assert [row.values["label"] for row in labeled] == list(texts), path.suffix
