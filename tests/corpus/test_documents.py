from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.config import DocumentMode
from maskwright.corpus.documents import (
    cut_text,
    detect_mode,
    fingerprint_pair,
    fingerprint_text,
    read_lines,
    split_documents,
)
from tests.corpus.helpers import split_anywhere


def test_fingerprints_are_pinned() -> None:
    """Splits and prepared data depend on them: another value would move documents."""
    assert fingerprint_text("") == 0xB4B2797457A0A6E4
    assert fingerprint_text("maskwright") == 0x61D16321B2D662EB
    assert fingerprint_pair("maskwright") == (0x61D16321B2D662EB, 0x58B36CAA0E504398)


@given(st.text(alphabet="ab \n"), st.integers(2, 9))
def test_cutting_loses_nothing_and_keeps_to_the_limit(text: str, limit: int) -> None:
    pieces = list(cut_text(text, limit))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= limit for piece in pieces) or not text
    assert len(pieces) <= 1 + len(text) // (limit // 2)


def test_a_cut_prefers_a_line_end_then_a_blank() -> None:
    assert list(cut_text("one two\nthree four", 13)) == ["one two\n", "three four"]
    assert list(cut_text("one two three", 12)) == ["one two ", "three"]
    assert list(cut_text("abcdefgh", 5)) == ["abcde", "fgh"]


@given(st.text(alphabet="ab \n", min_size=1), st.lists(st.integers(1, 5)), st.integers(3, 9))
def test_lines_do_not_depend_on_the_blocks(text: str, sizes: list[int], limit: int) -> None:
    blocks = [block.decode() for block in split_anywhere(text.encode(), sizes)]
    uncut = list(read_lines(blocks, 1_000, Counter()))
    assert uncut == text.removesuffix("\n").split("\n") or text == "\n"
    counts: Counter[str] = Counter()
    cut = list(read_lines(blocks, limit, counts))
    assert all(len(line) <= limit for line in cut)
    assert "".join(cut) == "".join(uncut)
    assert len(cut) == len(uncut) + counts["long line cut"]


ARTICLES = "Title\nFirst paragraph.\nSecond paragraph.\n\nOther title\nIts paragraph.\n"
SENTENCES = "First sentence.\nSecond sentence.\nThird sentence.\n"


def read(text: str, mode: DocumentMode = "auto", limit: int = 1_000) -> list[str]:
    return list(split_documents([text], mode, limit, Counter()))


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
    documents = list(split_documents(["\n".join(lines)], "file", 100, counts))
    assert "\n".join(documents).split("\n") == lines
    assert all(len(document) <= 100 for document in documents)
    assert counts == {"long document cut": len(documents) - 1}
