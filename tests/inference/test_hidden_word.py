from maskwright.inference.fill_mask import HiddenWord, WordPlace, find_words


def test_a_word_is_all_its_tokens() -> None:
    text = "black larvae, 7"
    offsets = [(0, 5), (6, 8), (8, 12), (12, 13), (14, 15)]
    starts = [True, True, False, True, True]
    assert find_words(text, offsets, starts) == [
        WordPlace(0, 1, 0, 5),
        WordPlace(1, 3, 6, 12),
        WordPlace(4, 5, 14, 15),
    ]


def test_blanks_inside_a_token_are_not_the_word() -> None:
    offsets = [(0, 3), (3, 7), (7, 8)]  # as byte-level BPE: the blank belongs to the word after it
    assert find_words("the cat ", offsets, [True, True, True]) == [
        WordPlace(0, 1, 0, 3),
        WordPlace(1, 2, 4, 7),
    ]


def test_no_tokens_have_no_words() -> None:
    assert find_words("", [], []) == []


def test_four_lines() -> None:
    hidden = HiddenWord("black larvae eat", 6, 12, " snails", "[MASK][MASK]")
    assert hidden.describe() == [
        "masked: larvae predicted: snails",
        "ACTUAL: black larvae eat",
        "MASKED: black [MASK][MASK] eat",
        "MODEL:  black snails eat",
    ]
