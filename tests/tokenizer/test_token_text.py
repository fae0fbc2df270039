"""Where sentences end, and which tokens end one: no byte of another character does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.token_text import (
    TokenText,
    cut_sentences,
    find_sentence_ends,
    make_examples,
    measure_tokenizer,
    show_tokens,
)
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained


def count(tokenizer: Tokenizer, text: str) -> int:
    pieces = TokenText(tokenizer)
    ids = tokenizer.encode(text).ids.tolist()
    assert tokenizer.unk_id not in ids
    return sum(map(pieces.count_characters, tokenizer.tokens(ids)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [english_texts()[0][:2000], KOREAN, CHINESE])
def test_tokens_have_the_characters_of_their_text(kind: TokenizerKind, text: str) -> None:
    """Whatever cuts it, so that bits per character compare."""
    assert count(trained(kind), text) == sum(not character.isspace() for character in text)


def test_the_bytes_of_a_character_count_once() -> None:
    tokenizer = trained("bpe")
    assert len(tokenizer.encode("\N{SNOWMAN}").ids) > 1
    assert count(tokenizer, "\N{SNOWMAN} \N{SNOWMAN}\n") == 2
    assert count(tokenizer, MIXED) == sum(not character.isspace() for character in MIXED)


def test_marks_are_no_characters() -> None:
    wordpiece, unigram = TokenText(trained("wordpiece")), TokenText(trained("unigram"))
    assert [wordpiece.count_characters(token) for token in ("ing", "##ing", "#")] == [3, 3, 1]
    assert [unigram.count_characters(token) for token in ("\u2581the", "\u2581", "e")] == [3, 0, 1]


@pytest.mark.parametrize(
    ("kind", "blanks"),
    [("bpe", ["\u0120", "\u010a"]), ("unigram", ["\u2581"]), ("character", [" ", "\n"])],
)
def test_blanks_alone(kind: TokenizerKind, blanks: list[str]) -> None:
    tokenizer = trained(kind)
    assert all(tokenizer.token_id(blank) is not None for blank in blanks if kind != "unigram")
    pieces = TokenText(tokenizer)
    assert all(map(pieces.is_blank, blanks))
    assert not any(map(pieces.is_blank, ["a", f"{blanks[0]}a"]))


def test_bytes_that_stand_in_for_characters() -> None:
    unigram = trained("unigram")
    model = {**unigram.description["model"], "byte_fallback": True}
    pieces = TokenText(Tokenizer({**unigram.description, "model": model}, unigram.special_tokens))
    snowman = [f"<0x{byte:02X}>" for byte in "\N{SNOWMAN}".encode()]
    assert [pieces.count_characters(token) for token in snowman] == [1, 0, 0]
    assert pieces.count_characters("<0x0A>") == 0
    assert pieces.is_blank("<0x0A>")
    assert not any(map(pieces.is_blank, [*snowman, "e", "\u2581the"]))
    assert pieces.count_characters("<0x41>") == 1


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("bpe", "the \N{SNOWMAN}\n", ["the", "▁", "<0xE2>", "<0x98>", "<0x83>", "↵"]),
        ("bpe", "a[MASK]\té", ["a", "[MASK]", "⇥", "<0xC3>", "<0xA9>"]),
        ("character", "a \n", ["a", "▁", "↵"]),
    ],
)
def test_tokens_are_shown_as_text(kind: TokenizerKind, text: str, shown: list[str]) -> None:
    tokenizer = trained(kind)
    assert show_tokens(tokenizer, tokenizer.encode_prompt(text).ids.tolist()) == shown


def test_byte_level_korean_is_shown_as_korean() -> None:
    tokenizer = train_tokenizer([KOREAN] * 3, TokenizerConfig("bpe", 400, min_frequency=1))
    shown = show_tokens(tokenizer, tokenizer.encode(KOREAN).ids.tolist())
    assert any("가" <= character <= "힣" for token in shown for character in token)
    assert not any("Ġ" in token or "ì" in token or "\ufffd" in token for token in shown)


def test_an_added_token_is_shown_as_it_is() -> None:
    """Added tokens are matched as text, so the byte alphabet does not apply to them."""
    tokenizer = trained("bpe")
    added = {"id": tokenizer.vocab_size, "content": "한 국", "special": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokens = [*tokenizer.description["added_tokens"], {**added, **flags}]
    grown = Tokenizer({**tokenizer.description, "added_tokens": tokens}, tokenizer.special_tokens)
    assert show_tokens(grown, [tokenizer.vocab_size]) == ["한▁국"]


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_frequent_words_and_no_quotation(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    first, second = make_examples(tokenizer, 2)
    words = [*first.split(), *second.split()]
    assert len(words) == len(set(words)) == 8
    assert words == sorted(words)
    assert not any(first in text or second in text for text in english_texts())
    if kind != "character":
        assert "the" in words
        assert all(word.isalpha() and len(word) > 1 for word in words)


def test_counts_of_a_text_choose_the_words() -> None:
    tokenizer = train_tokenizer(["ab cd ef gh ij"] * 9, TokenizerConfig(min_frequency=1))
    counts = np.bincount(tokenizer.encode("ij gh gh ef cd").ids, minlength=tokenizer.vocab_size)
    assert make_examples(tokenizer, 1, counts) == ["cd ef gh ij"]
    assert make_examples(tokenizer, 1) != ["cd ef gh ij"]


def letters() -> Tokenizer:
    return train_tokenizer(["ab c\n" * 4], TokenizerConfig(kind="character"))


def test_the_numbers_of_a_small_text() -> None:
    stats = measure_tokenizer(letters(), ["ab é", "", "c"])
    counts = (stats.num_tokens, stats.num_characters, stats.num_bytes, stats.num_words)
    assert counts == (5, 5, 6, 3)
    assert stats.fertility == pytest.approx(5 / 3)
    assert stats.tokens_per_character == 1.0
    assert stats.bytes_per_token == pytest.approx(6 / 5)
    assert stats.unknown_share == pytest.approx(1 / 5)
    assert stats.split_share == pytest.approx(1 / 4)  # ab, the blank, é, c
    assert stats.used_share == pytest.approx(4 / 5)
    assert sorted(stats.most_frequent) == [("[UNK]", 1), ("a", 1), ("b", 1), ("c", 1), ("▁", 1)]


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


PIECES = st.sampled_from(
    [*" \n.!?\"'()", *"\u3002\uff01\u300c\u300dAaz9", "Mr", "e.g", ". ", "\n\n"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_the_cutter_loses_nothing(text: str) -> None:
    sentences = cut_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
