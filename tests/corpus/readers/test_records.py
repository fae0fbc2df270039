import json
from collections import Counter
from pathlib import Path

import pytest

from maskwright.corpus.readers import records
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
    assert counts == {
        "bad JSON line (first x.jsonl:3)": 5,
        "missing field text": 2,
        "field text is not text": 1,
    }


def test_a_field_that_no_object_has_names_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"body": "words", "id": 1}\n')
    with pytest.raises(CorpusError, match=r"x.jsonl has no field text; it has: body, id\."):
        read_all(path)
    with pytest.raises(CorpusError, match="it has: body, id"):  # never in silence
        read_all(str(tmp_path))


def test_a_field_without_strings_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": 1}\n{"text": 2}\n')
    with pytest.raises(CorpusError, match="has no text in its field text"):
        read_all(path)


def test_json_that_is_not_one_object_a_line_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", '"a string"\n')
    with pytest.raises(CorpusError, match=r"x.json contains no JSON object, .* line 1 "):
        read_all(path)
    write(tmp_path / "y.txt", "words")
    counts: Counter[str] = Counter()
    assert read_all(str(tmp_path), counts) == ["words"]
    assert counts == {"ignored file .json": 1}


RECORDS = '{"text": "a"},\n{"text": "b"},\n{"text": "c"}'


@pytest.mark.parametrize("content", [f"[{RECORDS}]", f"\n [\n{RECORDS}\n]\n", "[{}]", "\ufeff[\n"])
def test_a_json_array_is_refused_at_its_beginning(tmp_path: Path, content: str) -> None:
    """Of an array with a record a line, the last one alone is a JSON line."""
    path = write(tmp_path / "x.jsonl", content)
    with pytest.raises(CorpusError, match=r"x\.jsonl is a JSON array, .* jq -c"):
        read_all(path)
    write(tmp_path / "y.txt", "words")
    counts: Counter[str] = Counter()
    assert read_all(str(tmp_path), counts) == ["words"]
    assert counts == {"JSON array": 1}


def test_csv_fields_may_be_quoted_and_hold_line_ends(tmp_path: Path) -> None:
    content = 'id,text\r\n1,"one, ""two""\r\n\r\nthree"\r\n\r\n2,four\r\n3\r\n'
    counts: Counter[str] = Counter()
    path = write(tmp_path / "x.csv", content)
    assert read_all(path, counts) == ['one, "two"\n\nthree', "four"]
    assert counts == {"table row of another width (first x.csv:7)": 1}


def test_tsv_takes_quotation_marks_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", 'text\tlabel\n"Oh", she said\t1\n"never closed\t0\n')
    assert read_all(path) == ['"Oh", she said', '"never closed']


def test_an_unclosed_quotation_mark_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_ROW_CHARACTERS", 10_000)
    content = 'text\ngood\n"never closed\n' + "swallowed words\n" * 700 + '"after"\n'
    counts: Counter[str] = Counter()
    documents = read_all(write(tmp_path / "x.csv", content), counts)
    assert (documents[0], len(documents), documents[-1]) == ("good", 702, "after")
    assert counts["bad table row"] == 1


@pytest.mark.parametrize("end", ["after,2\nlast,3\n", "last,3", ""])
def test_a_quotation_mark_that_nothing_closes_costs_its_line(tmp_path: Path, end: str) -> None:
    """Other quotation marks that break the rules are read as before."""
    counts: Counter[str] = Counter()
    path = write(tmp_path / "x.csv", f'text,n\n"a"b,c\na "b",c\n"never closed\n{end}')
    after = [line.partition(",")[0] for line in end.splitlines()]
    assert read_all(path, counts) == ["ab", 'a "b"', *after]
    assert counts == {"bad table row": 1}


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_column_that_does_not_exist_names_those_there_are(tmp_path: Path, suffix: str) -> None:
    separator = "," if suffix == "csv" else "\t"
    path = write(tmp_path / f"x.{suffix}", separator.join(["id", "body"]) + "\n")
    with pytest.raises(CorpusError, match=f"x.{suffix} has no field text; it has: id, body"):
        read_all(path)
    with pytest.raises(CorpusError, match="is empty: it has no text"):
        read_all(path, text_field="body")


def test_tsv_may_hold_quoted_line_ends(tmp_path: Path) -> None:
    rows = [f'{n}\t"snail {n} eats\nleaf {n} today"\tby Ann' for n in range(5)]
    path = write(tmp_path / "x.tsv", "\n".join(["label\ttext\tnote", *rows]))
    counts: Counter[str] = Counter()
    expected = [f"snail {n} eats\nleaf {n} today" for n in range(5)]
    assert (read_all(path, counts), counts) == (expected, {})
    assert read_all(path, text_field="note") == ["by Ann"] * 5


@pytest.mark.parametrize(
    ("num_good", "num_bad", "is_error"),
    [(0, 1, True), (1, 3, False), (1, 4, True), (395, 4, True), (396, 4, False)],
)
def test_more_than_a_few_rows_of_another_width_are_an_error(
    tmp_path: Path, num_good: int, num_bad: int, is_error: bool
) -> None:
    rows = ["x,snail"] * num_good + ["x,snail 1, worm 1, slug 1"] * num_bad
    path = write(tmp_path / "x.csv", "\n".join(["label,text", *rows]))
    counts: Counter[str] = Counter()
    if is_error:
        with pytest.raises(CorpusError, match=rf"x\.csv, line {num_good + 2}: .* 4 .* 2\. .*comma"):
            read_all(path, counts)
    else:
        assert read_all(path, counts) == ["snail"] * num_good
        assert counts == {f"table row of another width (first x.csv:{num_good + 2})": num_bad}


@pytest.mark.parametrize("content", ["sep=;\nid;text\n1;a, b\n", "id\ttext\n1\ta, b\n"])
def test_another_separator_is_found_by_the_field(tmp_path: Path, content: str) -> None:
    assert read_all(write(tmp_path / "x.csv", content)) == ["a, b"]
