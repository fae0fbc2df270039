import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import InputError
from maskwright.tokenizer.config import TokenizerKind
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained

SENTENCE = "The statement is executed in the new namespace."


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_bytes_give_any_composed_text_back(text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    tokenizer = trained("bpe", lowercase=False)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_decoding_gives_the_words_back(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    decoded = tokenizer.decode(tokenizer.encode(SENTENCE).ids)
    assert decoded == SENTENCE.lower()
    assert tokenizer.decode(tokenizer.encode(KOREAN).ids) == KOREAN.strip()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [SENTENCE, KOREAN, CHINESE, MIXED])
def test_word_starts(kind: TokenizerKind, text: str) -> None:
    encoded = trained(kind).encode(text)
    assert encoded.ids.dtype == np.uint32
    assert encoded.word_starts.dtype == np.bool_
    assert encoded.ids.shape == encoded.word_starts.shape
    assert encoded.word_starts[0]
    words = len(text.split())
    assert words <= encoded.word_starts.sum() <= len(encoded.ids)


@pytest.mark.parametrize("kind", KINDS)
def test_chinese_characters_are_words(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    encoded = tokenizer.encode("实数和数轴")
    if kind in ("wordpiece", "character"):
        assert encoded.word_starts.tolist() == [True] * 5
    else:  # these learn longer tokens, and each of them begins with a character of its own
        starts = [i for i, start in enumerate(encoded.word_starts.tolist()) if start]
        assert len(starts) > 1


def test_wordpieces_inside_a_word_are_the_marked_ones() -> None:
    tokenizer = trained("wordpiece")
    for text in english_texts():
        encoded = tokenizer.encode(text)
        marked = [token.startswith("##") for token in tokenizer.tokens(encoded.ids.tolist())]
        assert (encoded.word_starts ^ np.array(marked)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_written_in_text_is_text(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    for text in ("a [MASK] b", "[CLS][SEP]", " [PAD]"):
        assert not set(tokenizer.encode(text).ids.tolist()) & {0, 2, 3, 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_in_a_prompt_is_the_mask(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    prompt = tokenizer.encode_prompt("the [MASK] is new")
    assert (prompt.ids == tokenizer.mask_id).sum() == 1
    assert prompt.offsets.shape == (len(prompt.ids), 2)
    place = int(np.flatnonzero(prompt.ids == tokenizer.mask_id)[0])
    assert prompt.word_starts[place]
    start, stop = prompt.offsets[place]
    assert "the [MASK] is new"[start:stop].strip() == "[MASK]"
    without = tokenizer.encode_prompt("the is new")
    plain = tokenizer.encode("the is new")
    assert without.ids.tolist() == plain.ids.tolist()
    assert without.word_starts.tolist() == plain.word_starts.tolist()


def test_the_mask_of_bytes_takes_the_blank_before_it() -> None:
    tokenizer = trained("bpe")
    tokens = tokenizer.tokens(tokenizer.encode_prompt("the [MASK] is").ids.tolist())
    assert tokens == ["the", "[MASK]", "Ġis"]


def test_fingerprints_tell_tokenizers_apart_and_ignore_truncation() -> None:
    tokenizer = trained("wordpiece")
    truncation = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    same = Tokenizer({**tokenizer.description, "truncation": truncation}, tokenizer.special_tokens)
    assert same.fingerprint == tokenizer.fingerprint
    assert len(same.encode(SENTENCE * 5).ids) > 8
    prints = {trained(kind, lower).fingerprint for kind in KINDS for lower in (True, False)}
    assert len(prints) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_lowercase(kind: TokenizerKind) -> None:
    uncased, cased = trained(kind, True), trained(kind, False)
    assert uncased.lowercase
    assert not cased.lowercase
    removed = "removed" if kind == "wordpiece" else "kept"
    assert uncased.case == f"uncased, accents {removed}"
    assert cased.case == "cased, accents kept"


def test_a_prompt_that_is_too_long() -> None:
    with pytest.raises(InputError, match="2,000,001 characters"):
        trained("wordpiece").encode_prompt("a" * 2_000_001)
