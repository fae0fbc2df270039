"""Words in any script, and hashes of words in a row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.selection.words import count_letters_a_word, hash_words, join_hashes, split_words


def test_words_of_many_scripts() -> None:
    assert split_words("Hello, World's 12_3: (état)") == ["hello", "world", "s", "12", "3", "état"]
    assert split_words("漢字。かな") == list("漢字かな")
    assert split_words("हिन्दी भाषा।") == ["हिन्दी", "भाषा"]  # vowel signs belong to their word
    assert split_words("ภาษาไทย") == list("ภาษาไทย")
    assert split_words("กำลังที่") == ["กำ"[0], "ำ", "ลั", "ง", "ที่"]  # signs and tones, too
    assert split_words("བོད་ཡིག") == ["བོ", "ད", "ཡི", "ག"]  # the mark between syllables is none
    assert split_words("이것은 문장") == ["이것은", "문장"]
    assert split_words("… — !") == []


def test_letters_a_word() -> None:
    for text, letters in (
        ("plain words", 1),
        ("漢字です", 2),
        ("ภาษาไทย", 4),
        ("漢字 in an English text", 1),
    ):
        assert count_letters_a_word(text, split_words(text)) == letters


@given(st.lists(st.sampled_from("abcde"), max_size=30))
def test_equal_words_in_a_row_have_equal_hashes(words: list[str]) -> None:
    joined = dict(join_hashes(hash_words(words), [4, 2]))
    assert list(joined) == [n for n in (2, 4) if n <= len(words)]
    for n, hashes in joined.items():
        runs = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        assert len(hashes) == len(runs)
        assert len(set(runs)) == len(np.unique(hashes))
