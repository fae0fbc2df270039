"""A single text that names a file is the file, on every way; files are read by their names."""

from pathlib import Path

import pytest

from maskwright.corpus.text_inputs import find_file, has_conll_name, list_texts_of
from maskwright.errors import InputError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wikigold.conll", True),
        ("wikigold.conll.txt", True),
        ("A.BIO.TXT.gz", True),
        ("es-dev.conllu", True),
        ("a.iob", True),
        ("a.txt", False),
        ("a.conll.tsv", False),
    ],
)
def test_a_name_says_that_it_has_conll_name(name: str, expected: bool):
    assert has_conll_name(Path(name)) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "one\n\ntwo\n"),
        ("notes", "one\n\ntwo\n"),
        ("a.csv", "id,text\n1,one\n2,\n3,two\n"),
        ("a.tsv", "text\tid\none\t1\n\t2\ntwo\t3\n"),
        ("a.jsonl", '{"text": "one"}\n{"text": null}\n{"text": "two"}\n'),
    ],
)
def test_a_path_is_read_however_it_is_given(name: str, content: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    for given in (path, str(path), [str(path)], (str(path),)):
        assert list(list_texts_of(given)) == ["one", "", "two"]
    assert list(list_texts_of([str(path), "b"])) == [str(path), "b"]


@pytest.mark.parametrize("text", ["a text", "see a.txt", "e.g.", "x" * 5000, "a\0b", "", "3.txt b"])
def test_a_text_is_a_text(text: str):
    assert find_file(text) is None
    assert list(list_texts_of(text)) == [text]


@pytest.mark.parametrize("name", ["missing.csv", "missing.txt", "missing.conll", "m.jsonl.gz"])
def test_a_missing_file_is_no_text(name: str):
    with pytest.raises(InputError, match="does not exist"):
        find_file(name)
