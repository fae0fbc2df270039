from pathlib import Path

import pytest

from maskwright.corpus.formats import recognise_name


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
    assert recognise_name(Path(name)) == expected


@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_json_counts_if_it_is_named(compression: str) -> None:
    path = Path(f"dump.json{compression}")
    assert recognise_name(path) == (None, compression)
    assert recognise_name(path, named=True) == ("jsonl", compression)
