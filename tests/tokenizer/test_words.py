import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.tokenizer.words import find_boundaries, find_word_starts


def cut(text: str) -> list[str]:
    """`text` cut at its boundaries."""
    parts: list[str] = []
    for character, boundary in zip(text, find_boundaries(text), strict=True):
        if boundary:
            parts.append(character)
        else:
            parts[-1] += character
    return parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("snails, don't", ["snails", ",", " ", "don", "'", "t"]),
        ("x_y 3.14€", ["x", "_", "y", " ", "3", ".", "14€"]),
        # Of scripts without spaces, a word may begin anywhere.
        ("实数abc東京タワー", ["实", "数", "abc", "東", "京", "タ", "ワ", "ー"]),
        # Marks belong to the character before, and a joiner ends no word.
        ("e\u0301a สวัสดี", ["e\u0301a", " ", "ส", "วั", "ส", "ดี"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
    ],
)
def test_words_are_cut_at_boundaries(text: str, parts: list[str]) -> None:
    assert cut(text) == parts


def test_tokens_inside_a_word_do_not_start_one() -> None:
    starts = find_word_starts("snails, ok", [(0, 5), (5, 6), (6, 7), (7, 10)])
    assert starts == [True, False, True, True]


def test_bytes_of_one_character_start_one_word() -> None:
    assert find_word_starts(" 中x", [(0, 2), (1, 2), (1, 2), (2, 3)]) == [True, False, False, True]


@given(st.text())
def test_every_whitespace_character_and_the_first_one_is_a_boundary(text: str) -> None:
    boundaries = find_boundaries(text)
    assert len(boundaries) == len(text)
    assert all(boundaries[:1])
    assert all(b for c, b in zip(text, boundaries, strict=True) if c.isspace())
