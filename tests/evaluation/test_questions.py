from hypothesis import given
from hypothesis import strategies as st

from maskwright.evaluation.pseudo_likelihood import Questions, find_ends

MASK = 4
texts = st.lists(st.tuples(st.integers(5, 9), st.booleans()), max_size=12)


@given(texts)
def test_a_token_is_hidden_with_the_later_tokens_of_its_word(text: list[tuple[int, bool]]) -> None:
    starts = [start for _, start in text]
    words = [sum(starts[: place + 1]) for place in range(len(starts))]
    expected = [
        place + sum(word == words[place] for word in words[place:]) for place in range(len(words))
    ]
    assert find_ends(starts, "within_word_l2r") == expected
    assert find_ends(starts, "original") == [place + 1 for place in range(len(starts))]


def test_a_question_is_the_row_with_masks_and_the_place() -> None:
    questions = Questions(MASK)
    questions.add_text([2, 7, 8, 9, 3], 1, [True, True, False], "within_word_l2r")
    assert questions.rows == [[2, 4, 8, 9, 3], [2, 7, 4, 4, 3], [2, 7, 8, 4, 3]]
    assert (questions.places, questions.labels) == ([1, 2, 3], [7, 8, 9])


def test_sentences_that_differ_in_the_hidden_word_share_its_question() -> None:
    questions = Questions(MASK)
    questions.add_text([7, 8], 0, [True, True], "original")
    questions.add_text([7, 9], 0, [True, True], "original")
    assert questions.rows == [[4, 8], [7, 4], [4, 9]]
    assert (questions.asked, questions.labels) == ([0, 1, 2, 1], [7, 8, 7, 9])


def test_a_row_that_is_asked_at_two_places_is_two_questions() -> None:
    """Texts cannot hold the mask; a model whose vocabulary lets them would not confuse us."""
    questions = Questions(MASK)
    questions.add_text([MASK, 8], 0, [True, True], "original")
    questions.add_text([8, MASK], 0, [True, True], "original")
    assert [*zip(questions.rows, questions.places, strict=True)] == [
        ([MASK, 8], 0),
        ([MASK, MASK], 1),
        ([MASK, MASK], 0),
        ([8, MASK], 1),
    ]


@given(st.lists(texts, max_size=6))
def test_every_token_has_its_answer_and_no_question_occurs_twice(
    all_texts: list[list[tuple[int, bool]]],
) -> None:
    questions = Questions(MASK)
    for text in all_texts:
        ids, starts = [token for token, _ in text], [start for _, start in text]
        questions.add_text([2, *ids, 3], 1, starts, "within_word_l2r")
    assert questions.labels == [token for text in all_texts for token, _ in text]
    assert len(questions.asked) == len(questions.labels)
    assert len({tuple(row) for row in questions.rows}) == len(questions.rows)
    for row, place in zip(questions.rows, questions.places, strict=True):
        assert row[place] == MASK
        assert row[place - 1] != MASK
