from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.words import split_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She lives in Paris, France.", "She|lives|in|Paris|,|France|."),
        ('"(Paris)," he said...', '"|(|Paris|)|,|"|he|said|...'),
        ("A well-known don't costs $3.5!", "A|well-known|don't|costs|$|3.5|!"),
        ("George W. Bush (U.S.), e.g.,", "George|W.|Bush|(|U.S.|)|,|e.g.|,"),
        ("Snails live in Ireland . It 's so", "Snails|live|in|Ireland|.|It|'s|so"),
        ("हिन्दी में। 東京。 a\u200b \ufe0f", "हिन्दी|में|।|東京|。|a\u200b|\ufe0f"),
        (" \t", ""),
    ],
)
def test_punctuation_stands_by_itself(text: str, expected: str) -> None:
    assert "|".join(word.text for word in split_words(text)) == expected


@given(st.text(st.sampled_from("a1 .,'()-$\u00a0é…"), max_size=20))
def test_words_are_the_text_without_its_blanks(text: str) -> None:
    words = split_words(text)
    assert [text[word.start : word.end] for word in words] == [word.text for word in words]
    assert "".join(word.text for word in words) == "".join(text.split())
    assert all(a.end <= b.start for a, b in pairwise(words))
    again = split_words(" ".join(word.text for word in words))
    assert [word.text for word in again] == [word.text for word in words]
