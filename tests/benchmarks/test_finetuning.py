"""Tasks that are made of text: what is taken away is what is to be predicted."""

import pytest

from benchmarks.finetuning import tag_capitals, tag_punctuation


@pytest.mark.parametrize(
    ("word", "punctuation", "capital"),
    [
        ("Florida,", "florida B-COMMA", "florida, B-CAPITAL"),
        ("N.A.S.A.", "n.a.s.a B-STOP", "n.a.s.a. B-CAPITAL"),
        ("3.5", "3.5 O", "3.5 O"),
        ("...", "... O", "... O"),
        ("(from", "(from O", "(from O"),
    ],
)
def test_words_and_their_tags(word: str, punctuation: str, capital: str) -> None:
    assert tag_punctuation(word) == punctuation
    assert tag_capitals(word) == capital
