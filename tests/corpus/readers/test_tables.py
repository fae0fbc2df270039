from collections import Counter
from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from tests.corpus.helpers import read_all, write


def test_csv_fields_may_be_quoted_and_hold_line_ends(tmp_path: Path) -> None:
    content = 'id,text\r\n1,"one, ""two""\r\n\r\nthree"\r\n\r\n2,four\r\n3\r\n'
    counts: Counter[str] = Counter()
    path = write(tmp_path / "x.csv", content)
    assert read_all(path, counts) == ['one, "two"\n\nthree', "four"]
    assert counts == {"missing field text": 1}


def test_tsv_takes_quotation_marks_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", 'text\tlabel\n"Oh", she said\t1\n"never closed\t0\n')
    assert read_all(path) == ['"Oh", she said', '"never closed']


def test_an_unclosed_quotation_mark_is_bounded(tmp_path: Path) -> None:
    content = 'text\ngood\n"never closed\n' + "swallowed words\n" * 700_000 + '"after"\n'
    counts: Counter[str] = Counter()
    documents = read_all(write(tmp_path / "x.csv", content), counts)
    assert documents[0] == "good"
    assert documents[-1] == "after"
    assert counts["bad table row"] == 1


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_column_that_does_not_exist_names_those_there_are(tmp_path: Path, suffix: str) -> None:
    separator = "," if suffix == "csv" else "\t"
    path = write(tmp_path / f"x.{suffix}", separator.join(["id", "body"]) + "\n")
    with pytest.raises(CorpusError, match=f"x.{suffix} has no field text; it has: id, body"):
        read_all(path)
    with pytest.raises(CorpusError, match="is empty: nothing to train on"):
        read_all(path, text_field="body")


def test_a_byte_order_mark_does_not_hide_the_first_column(tmp_path: Path) -> None:
    assert read_all(write(tmp_path / "x.csv", b"\xef\xbb\xbftext\nwords\n")) == ["words"]
