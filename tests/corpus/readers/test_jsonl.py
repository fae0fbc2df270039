import json
from collections import Counter
from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from tests.corpus.helpers import read_all, write


def test_objects_without_text_and_bad_lines_are_counted(tmp_path: Path) -> None:
    lines = [
        '{"text": "first\\nline", "id": 1}',
        "",
        "{broken",
        "[1, 2]",
        '"a string"',
        '{"id": 2}',
        '{"text": null}',
        '{"text": 3}',
        "9" * 5_000,
        "[" * 100_000,
        '{"text": "raw\ttab"}',
        json.dumps({"text": "a\u2028b \ud800"}, ensure_ascii=True),
    ]
    counts: Counter[str] = Counter()
    path = write(tmp_path / "x.jsonl", "\n".join(lines))
    assert read_all(path, counts) == ["first\nline", "raw\ttab", "a\u2028b \ud800"]
    assert counts == {"bad JSON line (first x.jsonl:3)": 5, "missing field text": 3}


def test_another_field(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"body": "words"}\n')
    assert read_all(path, text_field="body") == ["words"]


def test_a_field_that_no_object_has_names_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"body": "words", "id": 1}\n')
    with pytest.raises(CorpusError, match=r"x.jsonl has no field text; it has: body, id\."):
        read_all(path)
    with pytest.raises(CorpusError, match="it has: body, id"):  # never in silence
        read_all(str(tmp_path))


def test_a_field_without_strings_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": 1}\n{"text": 2}\n')
    with pytest.raises(CorpusError, match="its values are no strings"):
        read_all(path)


def test_json_that_is_not_one_object_a_line_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", json.dumps([{"text": "a"}], indent=1))
    with pytest.raises(
        CorpusError,
        match=r"x.json holds no JSON object: .* line 1 is none",
    ):
        read_all(path)
    write(tmp_path / "y.txt", "words")
    counts: Counter[str] = Counter()
    assert read_all(str(tmp_path), counts) == ["words"]
    assert counts == {"ignored file .json": 1}
