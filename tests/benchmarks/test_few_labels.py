"""The rows to draw from and the test rows of the tasks with few labels."""

import json
from pathlib import Path

import pytest

from benchmarks.few_labels import NUM_ROWS, read_task, write_rows


def test_test_rows_are_the_same_and_are_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKWRIGHT_DATA", str(tmp_path))
    folder = tmp_path / "ner" / "wikigold"
    folder.mkdir(parents=True)
    blocks = [f"Ann{n} I-PER\nsees O\nRome{n} I-{'LOC' if n % 2 else 'ORG'}" for n in range(900)]
    (folder / "wikigold.conll.txt").write_text("\n\n".join(blocks) + "\n")
    tweets = tmp_path / "tweets.csv"
    lines = [f"negative,1,tweet {n // 2}" for n in range(1200)]  # each twice
    tweets.write_text("\n".join(["sentiment,confidence,text", *lines]) + "\n")
    for name, count in (("kinds", 900), ("wikigold", 900), ("tweets", 600)):
        pool, test = read_task(name, tweets)
        assert (pool, test) == read_task(name, tweets)
        assert len(pool) + len(test) == count
        assert len(pool) >= NUM_ROWS
        assert {json.dumps(row) for row in pool}.isdisjoint(json.dumps(row) for row in test)
    pool, _ = read_task("kinds", tweets)
    assert {row["label"] for row in pool} == {"LOC|PER", "ORG|PER"}
    words = write_rows(tmp_path / "rows.jsonl", read_task("wikigold", tweets)[1][:2])
    assert words.read_text() == "\n\n".join(blocks[600:602]) + "\n"
