"""Where sentences end, and which tokens end one: no byte of another character does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.token_text import SENTENCE_ENDS, cut_sentences, find_sentence_ends
from maskwright.tokenizer.train import train_tokenizer

ENGLISH = ["the cat sleeps . the dog sees it ! does it ?", "cats sleep."] * 20


def test_marks_of_a_vocabulary_are_found() -> None:
    tokenizer = train_tokenizer(ENGLISH, TokenizerConfig(vocab_size=46))
    ends = find_sentence_ends(tokenizer)
    assert {tokenizer.token(token_id) for token_id in ends} == {".", "!", "?"}


def test_the_last_byte_of_a_mark_is_none() -> None:
    tokenizer = train_tokenizer(ENGLISH, TokenizerConfig(kind="bpe", vocab_size=280))
    bytes_of_stop = tokenizer.encode("\u3002").ids.tolist()
    ends = find_sentence_ends(tokenizer)
    assert len(bytes_of_stop) > 1  # the text had none
    assert ends
    assert not ends & set(bytes_of_stop)


@pytest.mark.parametrize(
    "sentences",
    [
        ["The cat sat.", "It slept!", "Did it?", "12 mice knew."],
        ["He met Mr. Smith and J. R. Smith in St. Ives.", "They ate."],
        ['She said "no."', "He left (at once.)", "Nobody came, e.g. Ann."],
        ["“Why?” she said.", "«Да.»", "¿Qué?", "Εδώ."],
        ["The ratio is 3.5 to 1.", "See version 2.0 of it."],
        ["Wait ... for it?!", "(No.)", "Yes!!"],
        ["No stop at all"],
    ],
)
def test_sentences_are_cut_where_they_end(sentences: list[str]) -> None:
    assert cut_sentences(" ".join(sentences)) == sentences
    assert cut_sentences("\n\n".join(sentences)) == sentences


def test_wide_marks_need_no_blank() -> None:
    sentences = ["\u4f60\u597d\u3002", "\u300c\u771f\u7684\uff1f\uff01\u300d", "\u4ed6\u8bf4"]
    assert cut_sentences("".join(sentences)) == sentences


def test_a_wrapped_line_goes_on() -> None:
    assert cut_sentences("Title\nOne line\nand the rest.\nTwo") == [
        "Title",
        "One line\nand the rest.",
        "Two",
    ]


CLOSING, OPENING, WIDE = "\"')\u300d", "\"'(\u300c", ("\u3002", "\uff01")
PIECES = st.sampled_from(
    [*" \n.!?\"'()", *"\u3002\uff01\u300c\u300dAaz9", "Mr", "e.g", ". ", "\n\n"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_the_cutter_is_its_slow_twin_and_loses_nothing(text: str) -> None:
    sentences = cut_sentences(text)
    assert sentences == cut_slowly(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())


def cut_slowly(text: str) -> list[str]:
    """Return the same by looking before every character."""
    starts = [0]
    for place in range(len(text)):
        if not text[place].isspace() and ends_before(text[starts[-1] :], place - starts[-1]):
            starts.append(place)
    pieces = [text[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return [piece for piece in pieces if piece]


def ends_before(text: str, place: int) -> bool:
    """Return True if the first sentence of `text` ends before `place`, which is no blank."""
    sentence, follows = text[:place].rstrip(), text[place:].lstrip(OPENING)[:1]
    blanks, marked = text[len(sentence) : place], sentence.rstrip(CLOSING)
    if follows.islower() or follows in SENTENCE_ENDS:
        return False
    if "\n" in blanks:
        return True
    if blanks and any(is_abbreviated(sentence, word) for word in ("A", "Mr", "e.g")):
        return False
    is_inside = not blanks and text[place] in CLOSING
    return marked.endswith((*".!?",)) if blanks else marked.endswith(WIDE) and not is_inside


def is_abbreviated(sentence: str, word: str) -> bool:
    rest = sentence.removesuffix(f"{word}.")
    return rest != sentence and (not rest or rest[-1] in " \n(\"'.")
