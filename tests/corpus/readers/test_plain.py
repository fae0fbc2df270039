from collections import Counter
from pathlib import Path

import pytest

from maskwright.corpus.config import DocumentMode
from maskwright.corpus.readers.plain import detect_mode, read_plain
from maskwright.errors import CorpusError
from tests.corpus.helpers import read_all, write

ARTICLES = "Title\nFirst paragraph.\nSecond paragraph.\n\nOther title\nIts paragraph.\n"
SENTENCES = "First sentence.\nSecond sentence.\nThird sentence.\n"


def read(text: str, mode: DocumentMode = "auto", limit: int = 1_000) -> list[str]:
    return list(read_plain([text], mode, limit, Counter()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARTICLES, "blank_line"),
        (SENTENCES, "line"),
        (SENTENCES + "\n\n", "line"),
        ("\n\n" + SENTENCES, "line"),
        ("one line", "line"),
        (SENTENCES * 400 + "\n" + SENTENCES, "line"),  # one stray blank line
        ("A speech.\n \t\nAnother.", "blank_line"),
        ("", "blank_line"),
    ],
)
def test_the_beginning_tells_how_documents_are_separated(text: str, expected: str) -> None:
    assert detect_mode(text) == expected


def test_documents_keep_the_newlines_between_their_paragraphs() -> None:
    assert read(ARTICLES) == [
        "Title\nFirst paragraph.\nSecond paragraph.",
        "Other title\nIts paragraph.",
    ]


def test_the_mode_can_be_overridden() -> None:
    assert len(read(ARTICLES, "line")) == 5
    assert read(ARTICLES, "file") == [ARTICLES.strip()]
    assert read(SENTENCES, "blank_line") == [SENTENCES.strip()]
    assert len(read(SENTENCES)) == 3


def test_a_long_document_is_cut_and_counted() -> None:
    counts: Counter[str] = Counter()
    lines = [f"line {number}" for number in range(100)]
    documents = list(read_plain(["\n".join(lines)], "file", 100, counts))
    assert "\n".join(documents).split("\n") == lines
    assert all(len(document) <= 100 for document in documents)
    assert counts == {"long document cut": len(documents) - 1}


def test_one_enormous_line_is_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    text = " ".join(str(number) for number in range(400_000))
    counts: Counter[str] = Counter()
    documents = read_all(write(tmp_path / "x.txt", text), counts, max_document_characters=100_000)
    assert "".join(documents) == text
    assert max(map(len, documents)) <= 100_000
    assert counts["long line cut"] == len(documents) - 1


def test_a_markdown_file_is_one_document_unless_told_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "x.md", "# Title\n\nText.\n\nMore.\n")
    assert read_all(path) == ["# Title\n\nText.\n\nMore."]
    assert len(read_all(path, documents="blank_line")) == 3


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_an_empty_file_is_an_error_if_named_and_counted_in_a_folder(
    tmp_path: Path, content: str
) -> None:
    path = write(tmp_path / "notes.txt", content)
    with pytest.raises(CorpusError, match=r"notes\.txt is empty: nothing to train on\.$"):
        read_all(path)
    counts: Counter[str] = Counter()
    assert read_all(str(tmp_path), counts) == []
    assert sum(counts.values()) == 1


def test_a_binary_file_is_an_error_if_named_and_counted_in_a_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", bytes(range(256)) * 9)
    write(tmp_path / "y.txt", "Text.")
    with pytest.raises(CorpusError, match=r"x\.txt is binary"):
        read_all(path)
    counts: Counter[str] = Counter()
    assert read_all(str(tmp_path), counts) == ["Text."]
    assert counts == {"binary file": 1}
