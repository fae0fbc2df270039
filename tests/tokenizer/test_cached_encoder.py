import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.tokenizer import encoding
from maskwright.tokenizer.config import TokenizerKind
from maskwright.tokenizer.encoding import BERT_CUTTING, BYTE_CUTTING, choose_cutting
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained

# Words, and what could make a cut between them wrong.
WORDS = [
    *("the", "Statement", "a", "b2", "7", "don't", "'S", "e", "İ", "ﬁ", "½"),
    *("한국어", "中文", "ไทย", "ខ្មែរ\u200bភាសា", "ภาษา" * 40, "हिन्दी"),
]
TOKENS = ["[MASK]", "[UNK]", "[unused0]", "▁", "##a", "Ġ", "é", "😀", "e\u0301", "\u0301", "\u0338"]
BLANKS = [" ", "  ", "\n", "\t", "\r\n", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u3000"]
OTHERS = [*".,-_=(€¨\0\x7f\xad\u200b\u200d", "..."]
PIECES = st.sampled_from([*WORDS, *TOKENS, *BLANKS, *OTHERS])
TEXTS = st.one_of(st.lists(PIECES, max_size=20).map("".join), st.text(max_size=40))


def assert_same(tokenizer: Tokenizer, text: str) -> None:
    """The text is encoded as by the library, which is given all of it."""
    fast, slow = tokenizer.encode(text), tokenizer.encode_with_offsets(text)
    assert fast.ids.tolist() == slow.ids.tolist()
    assert fast.word_starts.tolist() == slow.word_starts.tolist()


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_fast_encoding_is_the_slow_one(kind: TokenizerKind, lowercase: bool) -> None:
    tokenizer = trained(kind, lowercase)

    @given(TEXTS)
    def check(text: str) -> None:
        assert_same(tokenizer, text)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_fast_encoding_is_the_slow_one_on_prose(kind: TokenizerKind) -> None:
    for text in [*english_texts()[:10], KOREAN, CHINESE, MIXED]:
        assert_same(trained(kind), text)


@given(TEXTS)
def test_nothing_is_lost_before_blanks(text: str) -> None:
    parts = BYTE_CUTTING.split(text)
    assert "".join(parts) == text
    assert "".join(part for chunk in parts for part in BYTE_CUTTING.divide(chunk)) == text


@given(TEXTS)
def test_only_blanks_are_lost_at_blanks(text: str) -> None:
    chunks_of = BERT_CUTTING.split(text)
    assert " ".join(chunks_of) == text.replace("\n", " ")
    assert all("".join(BERT_CUTTING.divide(chunk)) == chunk for chunk in chunks_of)


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = english_texts()[:5]
    expected = [trained("wordpiece").encode(text).ids.tolist() for text in texts]
    monkeypatch.setattr(encoding, "_CACHE_BYTES", 1000)
    forgetful = Tokenizer(trained("wordpiece").description, trained("wordpiece").special_tokens)
    assert [forgetful.encode(text).ids.tolist() for text in texts * 2] == expected * 2


def test_a_text_without_blanks_is_encoded_in_pieces() -> None:
    tokenizer = trained("bpe")
    text = "abc" * 20_000
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    assert encoded.ids.dtype == np.uint32


def description(kind: TokenizerKind) -> dict[str, object]:
    return json.loads(json.dumps(trained(kind).description))


def test_unknown_tokenizers_are_not_cut() -> None:
    for kind in KINDS:
        assert choose_cutting(description(kind)) is not None
    for change in (
        {"pre_tokenizer": None},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"added_tokens": [{"content": "foo bar", "special": False}]},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}},
    ):
        assert choose_cutting({**description("wordpiece"), **change}) is None


def test_an_uncut_tokenizer_encodes_the_whole_text() -> None:
    tokenizer = trained("bpe")
    pre_tokenizer = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    foreign = {**description("bpe"), "pre_tokenizer": {**pre_tokenizer, "trim_offsets": True}}
    uncut = Tokenizer(foreign, tokenizer.special_tokens)
    for text in english_texts()[:3]:
        assert_same(uncut, text)
