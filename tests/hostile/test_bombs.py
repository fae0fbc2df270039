"""Small files whose lines, rows and windows are large: bounded memory and time."""

import gzip
from pathlib import Path

import pytest

from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS, MAX_ROW_CHARACTERS
from tests.hostile.sandbox import read_limited, run_limited


def test_a_line_of_json_is_not_parsed_beyond_a_limit(tmp_path: Path) -> None:
    line = '{"text": [' + "{}," * (2 * MAX_RECORD_CHARACTERS // 3) + "{}]}\n"
    (tmp_path / "x.jsonl.gz").write_bytes(
        gzip.compress(line.encode() + b'{"text": "some words"}\n', 1)
    )
    output = read_limited(tmp_path / "x.jsonl.gz")
    assert output.startswith("10 ")
    assert "'bad JSON line (first x.jsonl.gz:1)': 3" in output


def test_a_table_row_ends(tmp_path: Path) -> None:
    """Each line here ends within quotation marks, so that all of it is one row."""
    line = "x" * 96 + '","\n'
    rows = 'text\nfirst\n"' + line * (3 * MAX_ROW_CHARACTERS // 100) + '"\nlast\n'
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(rows.encode(), 1))
    output = read_limited(tmp_path / "x.csv.gz")
    assert "'bad table row': " in output
    assert int(output.split()[0]) >= len("first")


def test_runs_of_combining_marks_take_linear_time(tmp_path: Path) -> None:
    for number, marks in enumerate(("\u0315\u0300", "\u0344", "\u0f73\u0f75")):
        (tmp_path / f"{number}.txt").write_text("a" + marks * 1_000_000 + " words", "utf-8")
    assert "'combining mark removed': 5" in read_limited(tmp_path)


def write_parquet(path: Path, **columns: object) -> Path:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table(columns), path, compression="zstd", row_group_size=1 << 30, store_schema=False,
        write_statistics=False, dictionary_pagesize_limit=1 << 30,
    )  # fmt: skip
    return path


def test_a_long_value_of_parquet_is_left_out(tmp_path: Path) -> None:
    texts = ["é" * MAX_RECORD_CHARACTERS, None, "some words"]
    output = read_limited(write_parquet(tmp_path / "x.parquet", text=texts))
    assert output.startswith("10 ")
    assert "'record too long': 1" in output
    assert "'missing field text': 1" in output


def test_text_without_blanks_trains_a_tokenizer_in_time() -> None:
    code = """
import random, string
from maskwright.errors import TokenizerError
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
draw = random.Random(0)
texts = ["".join(draw.choices(string.ascii_lowercase, k=60_000))]
try:
    train_tokenizer(texts, TokenizerConfig(kind="wordpiece", vocab_size=512))
except TokenizerError:
    print("refused")  # all of its characters would be lost
print(train_tokenizer(texts, TokenizerConfig(kind="bpe", vocab_size=512)).vocab_size)
"""
    assert run_limited(code).split() == ["refused", "512"]
