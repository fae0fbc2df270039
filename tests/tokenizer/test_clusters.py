"""Combining marks stay with their letters; the judge of clusters is the library's own ``\\X``."""

import random
import unicodedata
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Split

from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.learning import learn_merges
from maskwright.tokenizer.token_text import split_byte_clusters
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from maskwright.tokenizer.words import split_clusters

CLUSTERS = Split(Regex(r"\X"), "isolated")
# Letters, and the marks that may follow them; in Thai two may, and a tone.
SCRIPTS = {
    "tamil": ("கசடதபறனமயரலவழள", ["", "ா", "ி", "ீ", "ு", "ூ", "ெ", "ே", "ை", "்"]),
    "devanagari": ("कगचजटडतदनपबमयरलवसह", ["", "ा", "ि", "ी", "ु", "े", "ो", "ं", "ां", "ीं"]),
    "thai": ("กขคงจชดตทนบปพมยรลวสหอ", ["", "ิ", "ี", "ึ", "ุ", "่", "้", "ี่", "ึ้"]),
    "arabic": ("بتجحدرسعفقكلمنهوي", ["", "َ", "ِ", "ُ", "ْ", "َّ", "ً"]),
    "vietnamese": ("aeiouy", ["", "\u0301", "\u0300", "\u0309", "\u0303", "\u0302\u0323"]),
}
BASES = "bcdghlmnptv"  # of Vietnamese


@cache
def write_texts(script: str) -> tuple[str, ...]:
    """Return 400 lines of the words of a small vocabulary, frequent ones first."""
    draw = random.Random(script)
    letters, marks = SCRIPTS[script]
    syllables = [letter + mark for letter, mark in product(letters, marks)]
    if script == "vietnamese":
        syllables = [base + one for base, one in product(BASES, syllables)]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 5))) for _ in range(300)]
    weights = [1 / (n + 1) for n in range(len(words))]
    return tuple(" ".join(draw.choices(words, weights, k=40)) for _ in range(400))


@cache
def train(script: str, kind: TokenizerKind) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab_size=1024, min_frequency=1, lowercase=False)
    return train_tokenizer(write_texts(script), config)


def is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


@pytest.mark.parametrize("script", SCRIPTS)
def test_train_tokenizer_keeps_clusters_whole_in_bpe(script: str) -> None:
    tokenizer = train(script, "bpe")
    for text in write_texts(script)[:100]:
        normal = unicodedata.normalize("NFC", text)
        encoded = tokenizer.encode_with_offsets(normal)
        starts = {start for _, (start, _) in CLUSTERS.pre_tokenize_str(normal)}
        starts |= {start - 1 for start in starts if normal[start - 1 : start] == " "}
        assert {start for start, _ in encoded.offsets.tolist()} <= starts
        assert tokenizer.decode(encoded.ids) == normal


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_train_tokenizer_joins_no_mark_with_the_letter_after_it(
    script: str, kind: TokenizerKind
) -> None:
    tokenizer = train(script, kind)
    texts = (tokenizer.decode([token]) for token in tokenizer.ordinary_ids.tolist())
    texts = [text.removeprefix("##") for text in texts]
    first = [text for text in texts if text and is_mark(text[0])]
    assert [text for text in first if not all(map(is_mark, text))] == []
    assert len(first) <= 0.03 * len(texts)
    assert max(map(len, texts)) > 4  # words are joined all the same


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_train_tokenizer_has_room_for_words_beside_clusters(kind: TokenizerKind) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=384, min_frequency=1)
    tokenizer = train_tokenizer(write_texts("tamil"), config)
    assert tokenizer.vocab_size <= 384
    joined = [tokenizer.decode([token]) for token in tokenizer.ordinary_ids.tolist()]
    assert any(len(split_clusters(text)) > 2 for text in joined)


@given(
    st.dictionaries(st.text("abcé中한̈ ", min_size=1, max_size=8), st.integers(1, 9), max_size=20)
)
def test_learn_merges_is_as_before_without_marks(words: dict[str, int]) -> None:
    without = {word: count for word, count in words.items() if not any(map(is_mark, word))}
    alphabet = sorted({character for word in without for character in word})
    arguments = (without, alphabet, 60, 1, "##")
    assert learn_merges(*arguments) == learn_merges(*arguments, split_clusters)


@given(st.text(st.sampled_from("a கி்\u200d中é1 "), max_size=12))
def test_split_byte_clusters_is_split_clusters_in_bytes(text: str) -> None:
    [(word, _)] = ByteLevel(False, use_regex=False).pre_tokenize_str(text) or [("", (0, 0))]
    clusters = split_byte_clusters(word)
    assert ["".join(one) for one in clusters] == [
        "".join(spelled for spelled, _ in ByteLevel(False, use_regex=False).pre_tokenize_str(one))
        for one in map("".join, split_clusters(text))
    ]
    assert "".join(map("".join, split_byte_clusters(word[1:]))) in ("", word[1:])  # cut in a letter
