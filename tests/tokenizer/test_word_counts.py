from collections import Counter

import pytest

from maskwright.tokenizer.config import TokenizerKind
from maskwright.tokenizer.encoding import choose_cutting
from maskwright.tokenizer.learning import (
    choose_alphabet,
    count_words,
    drop_words_beyond,
    keep_frequent,
)
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained


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
