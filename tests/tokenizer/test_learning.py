"""The learner against the library's own trainer, which is deterministic for plain BPE."""

from collections import Counter

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from maskwright.tokenizer.config import TokenizerKind
from maskwright.tokenizer.encoding import choose_cutting
from maskwright.tokenizer.learning import (
    choose_alphabet,
    count_words,
    drop_words_beyond,
    keep_frequent,
    learn_merges,
    sample_texts,
)
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained

TEXTS = st.lists(st.text(min_size=1, max_size=30), max_size=30)


@given(TEXTS, st.integers(0, 200), st.integers(0, 3))
def test_bounded_in_order_and_repeatable(texts: list[str], limit: int, seed: int) -> None:
    numbered = [f"{index:03d}{text}" for index, text in enumerate(texts)]
    sample = sample_texts(iter(numbered), limit, seed)
    assert sum(len(text.encode()) for text in sample) <= limit
    assert sample == sorted(sample)
    assert sample == sample_texts(numbered, limit, seed)


def test_early_and_late_texts_are_equally_likely() -> None:
    texts = [f"{index:04d}" for index in range(1000)]
    kept = [text for seed in range(40) for text in sample_texts(texts, 400, seed)]
    assert len(kept) == 40 * 100
    early = sum(text < "0500" for text in kept)
    assert abs(early - 2000) < 150  # five standard deviations
    assert sample_texts(texts, 400, 1) != sample_texts(texts, 400, 2)


def test_long_texts_are_cut_at_blanks_and_nothing_is_lost() -> None:
    text = "word " * 20_000 + "x" * 40_000
    sample = sample_texts([text], 1_000_000, 0)
    assert "".join(sample) == text
    assert max(map(len, sample)) <= 16_384
    assert all(piece.startswith((" ", "x")) for piece in sample[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_are_those_of_the_whole_text(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    backend, cutting = tokenizer.backend, choose_cutting(tokenizer.description)
    assert cutting is not None
    assert backend.normalizer is not None
    assert backend.pre_tokenizer is not None
    texts = [*english_texts()[:4], KOREAN, CHINESE, MIXED]
    expected: Counter[str] = Counter()
    for text in texts:
        normal = backend.normalizer.normalize_str(text)
        expected.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
    assert count_words(texts, backend, cutting) == expected


def test_frequent_words_are_kept_and_ties_drawn_by_seed() -> None:
    words = Counter({"often": 5, **{f"w{index:02d}": 1 for index in range(50)}})
    kept = keep_frequent(words, 5 + 3 * 10, seed=1)
    assert kept["often"] == 5
    assert len(kept) == 11
    assert kept == keep_frequent(words, 35, seed=1) != keep_frequent(words, 35, seed=2)
    assert keep_frequent(words, 1000, seed=1) == words


def test_the_alphabet_covers_a_share_of_the_characters() -> None:
    words = {"aab": 10, "ac": 1}  # 21 a, 10 b, 1 c
    assert choose_alphabet(words, 1.0, 100) == ["a", "b", "c"]
    assert choose_alphabet(words, 0.9, 100) == ["a", "b"]
    assert choose_alphabet(words, 1.0, 1) == ["a"]
    assert drop_words_beyond(words, ["a", "b"]) == {"aab": 10}


def words_of(texts: list[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.split())


def test_the_same_vocabulary_as_the_library() -> None:
    texts = english_texts()
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=2, show_progress=False)
    library.train_from_iterator(texts, trainer)
    words = words_of(texts)
    learned = learn_merges(words, sorted({c for word in words for c in word}), 1500, 2)
    expected = sorted(library.get_vocab().items(), key=lambda item: item[1])
    assert learned.tokens == [token for token, _ in expected]


def test_the_prefix_marks_inner_symbols() -> None:
    learned = learn_merges({"aba": 3}, ["a", "b"], 100, 1, "##")
    assert learned.tokens == ["a", "b", "##a", "##b", "ab", "aba"]
