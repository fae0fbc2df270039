import bz2
import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.progress import ReadProgress
from maskwright.corpus.readers import blocks
from maskwright.corpus.sources import find_sources
from maskwright.corpus.stream import stream_corpus
from tests.corpus.helpers import write

LINES = "".join(f"line {number} of {number * number}\n" for number in range(20_000)).encode()


def follow(paths: list[str], config: CorpusConfig | None = None) -> list[float]:
    """The shares that are reported while `paths` are read, one a document."""
    progress = ReadProgress()
    config = config or CorpusConfig(documents="line", valid_fraction=0.0)
    return [progress.share for _ in stream_corpus(paths, config, Counter(), progress)]


def identity(content: bytes) -> bytes:
    return content


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.txt", identity),
        ("a.txt.gz", gzip.compress),
        ("a.txt.bz2", bz2.compress),
        ("a.txt.xz", lzma.compress),
        ("a.txt.zst", zstandard.compress),
    ],
)
def test_files_count_by_the_bytes_that_are_stored(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 14)
    half = len(LINES) // 2
    for folder, content in (("1", LINES[:half]), ("2", LINES[half:])):
        write(tmp_path / folder / name, pack(content))
    shares = follow([str(tmp_path / "1"), str(tmp_path / "2")])
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.6
    assert 0.4 < shares[len(shares) // 2] <= 1
    assert shares[-1] == 1


def test_rows_of_parquet_stand_for_its_bytes(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": LINES.decode().split("\n")}), tmp_path / "a.parquet")
    shares = follow([str(tmp_path / "a.parquet")])
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert 0.4 < shares[len(shares) // 2] < 0.6
    assert shares[-1] == 1


def test_what_is_held_out_counts_too(tmp_path: Path) -> None:
    train, valid = write(tmp_path / "a.txt", LINES), write(tmp_path / "b.txt", LINES[::-1])
    config = CorpusConfig(documents="file", valid_text=(valid,))
    assert follow([train], config) == [0.5, 1]


def test_a_file_that_cannot_be_read_is_behind_once_the_next_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"%PDF-1.7\n" + LINES)
    write(tmp_path / "b.txt", LINES)
    assert follow([str(tmp_path)])[-1] == 1


def test_nothing_is_said_where_a_size_is_not_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", LINES)
    progress = ReadProgress()
    progress.expect(find_sources([path, "-"]))
    progress.begin(find_sources([path])[0])
    progress.advance(len(LINES))
    assert str(progress) == ""


def test_what_is_read_ahead_is_not_done() -> None:
    progress = ReadProgress(100)
    items = progress.hand_out(range(4))
    next(items)
    next(items)
    progress.advance(50)
    assert str(progress) == ""
    progress.finish()
    assert progress.share == 0.25
    assert str(progress).startswith(" (25%, ")
    assert str(progress).endswith(" left)")
