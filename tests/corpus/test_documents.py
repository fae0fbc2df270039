import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.config import DocumentMode
from maskwright.corpus.documents import (
    cut_text,
    detect_mode,
    expand_home,
    fingerprint_pair,
    fingerprint_text,
    read_lines,
    split_documents,
)
from maskwright.errors import CorpusError
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


def test_a_long_document_is_cut_and_counted() -> None:
    counts: Counter[str] = Counter()
    lines = [f"line {number}" for number in range(100)]
    documents = list(split_documents(["\n".join(lines)], "file", 100, counts))
    assert "\n".join(documents).split("\n") == lines
    assert all(len(document) <= 100 for document in documents)
    assert counts == {"long document cut": len(documents) - 1}


AWKWARD = st.text(
    alphabet=st.one_of(
        st.sampled_from(
            " \n\t\r\0\v\f\x1c\x85\xa0\xad\u200b\u200d\u2028\u3000\ufeff\udc80é\u0301한ᄒ가"
        ),
        st.characters(),
        st.characters(categories=["Cs", "Cc", "Cf", "Zs", "Mn"]),
    ),
    max_size=40,
)


@given(AWKWARD)
@example("a\u200b\u0301")  # what is left composes only after the invisible character went
@example("a\r\n\r\n\r\nb")
@example("\n \n\t\n")
def test_cleaning_is_a_fixed_point(text: str) -> None:
    once = clean_text(text, Counter())
    repairs: Counter[str] = Counter()
    assert clean_text(once, repairs) == once
    assert not repairs
    assert unicodedata.is_normalized("NFC", once)
    once.encode()  # no lone surrogate is left


@given(AWKWARD)
def test_whitespace_is_tidy(text: str) -> None:
    cleaned = clean_text(text, Counter())
    assert cleaned == cleaned.strip()
    assert not {c for c in cleaned if c.isspace()} - {" ", "\n"}
    for untidy in ("  ", " \n", "\n ", "\n\n\n"):
        assert untidy not in cleaned


@given(st.text(alphabet=st.characters(categories=["L", "Nd", "P"]), min_size=1))
def test_words_survive(word: str) -> None:
    assert clean_text(f" {word}\t{word}\n", Counter()) == unicodedata.normalize(
        "NFC", f"{word} {word}"
    )


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        ("A paragraph.\nAnother.\n\nA third.", "A paragraph.\nAnother.\n\nA third.", None),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour", None),
        ("  a\t\u00a0 b  \n\n\n\n c ", "a b\n\nc", None),
        ("nu\0ll", "null", "NUL removed"),
        ("be\x07ll\x9f", "bell", "control character removed"),
        ("bro\udce9ken", "bro\ufffdken", "invalid UTF-8 replaced"),
        ("soft\u00adhy\u200bphen\ufeff", "softhyphen", "invisible character removed"),
        ("ខ្មែរ\u200bភាសា \u200b។", "ខ្មែរ ភាសា ។", "zero-width space replaced"),
        ("cafe\u0301", "caf\u00e9", "Unicode normalized"),
        ("می\u200cخواهم 👩\u200d🔬", "می\u200cخواهم 👩\u200d🔬", None),
        ("한글과 漢字", "한글과 漢字", None),
        (unicodedata.normalize("NFD", "한글"), "한글", "Unicode normalized"),
        ("", "", None),
        (" \n\t\n ", "", None),
    ],
)
def test_examples(text: str, expected: str, reason: str | None) -> None:
    counts: Counter[str] = Counter()
    assert clean_text(text, counts) == expected
    assert counts == ({reason: 1} if reason else {})


def test_a_document_counts_once_for_each_reason() -> None:
    counts: Counter[str] = Counter()
    clean_text("a\0\nb\0\nc\x07", counts)
    assert counts == {"NUL removed": 1, "control character removed": 1}


def test_marks_are_the_characters_that_normalizing_sorts() -> None:
    """The quick question before the slow one may not miss any."""
    marks = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.combining(c)]
    assert len(marks) > 900
    assert all(re.fullmatch(r"\W", mark) for mark in marks)


@pytest.mark.parametrize("marks", ["\u0315\u0300", "\u0344", "\u0f73\u0f75", "\u0301"])
@pytest.mark.parametrize("length", [1_990, 2_010, 50_000])
def test_runs_of_marks_are_cut_and_stay_so(marks: str, length: int) -> None:
    counts: Counter[str] = Counter()
    text = clean_text("e" + marks * (length // len(marks)) + " words", counts)
    assert clean_text(text, Counter()) == text
    assert unicodedata.is_normalized("NFC", text)
    if length > 2_000:
        assert counts["combining mark removed"] == 1
        assert len(text) < 100
    assert text.endswith(" words")


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home("~/x") == Path("/home/me/x")
    assert expand_home("a~b") == Path("a~b")
    with pytest.raises(CorpusError, match="~nobody-of-this-name/x: "):
        expand_home("~nobody-of-this-name/x")
