import re
import sys
import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maskwright.corpus.documents import clean_text

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


def test_words_with_many_marks_stay() -> None:
    text = "ngữ " * 700 + "שָׁלוֹם" + "!" * 40
    assert clean_text(text, Counter()) == unicodedata.normalize("NFC", text)
