import numpy as np
import pytest

from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.token_text import TokenText, make_examples, show_tokens
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


def test_wordpiece_and_unigram_keep_their_marks() -> None:
    for kind, mark in (("wordpiece", "##"), ("unigram", "\u2581")):
        tokenizer = trained(kind)
        ids = [i for i in tokenizer.ordinary_ids.tolist() if tokenizer.token(i).startswith(mark)]
        assert show_tokens(tokenizer, ids) == tokenizer.tokens(ids)


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


def test_a_vocabulary_of_few_letters_has_short_examples() -> None:
    tokenizer = train_tokenizer(["abc"], TokenizerConfig(kind="character", min_frequency=1))
    assert make_examples(tokenizer, 2) == ["a b c", ""]
