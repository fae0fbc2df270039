import pytest

from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.token_text import find_longest_tokens, measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.tokenizer.helpers import english_texts, trained


def letters() -> Tokenizer:
    return train_tokenizer(["ab c\n" * 4], TokenizerConfig(kind="character"))


def test_the_numbers_of_a_small_text() -> None:
    stats = measure_tokenizer(letters(), ["ab é", "", "c"])
    assert (stats.num_tokens, stats.num_characters, stats.num_bytes, stats.num_words) == (
        5,
        5,
        6,
        3,
    )
    assert stats.fertility == pytest.approx(5 / 3)
    assert stats.tokens_per_character == 1.0
    assert stats.bytes_per_token == pytest.approx(6 / 5)
    assert stats.unknown_share == pytest.approx(1 / 5)
    assert stats.split_share == pytest.approx(1 / 4)  # ab, the blank, é, c
    assert stats.used_share == pytest.approx(4 / 5)
    assert sorted(stats.most_frequent) == [
        ("[UNK]", 1),
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("▁", 1),
    ]


def test_no_text_has_no_ratios() -> None:
    stats = measure_tokenizer(letters(), [])
    assert stats.num_tokens == stats.fertility == stats.unknown_share == stats.used_share == 0
    assert stats.most_frequent == []


def test_a_vocabulary_fits_the_text_it_was_learned_from() -> None:
    stats = measure_tokenizer(trained("wordpiece"), english_texts())
    assert 1.0 < stats.fertility < 3.0
    assert stats.unknown_share < 0.01
    assert stats.used_share > 0.7
    assert stats.most_frequent[0][0] in {".", ",", "the", "`", '"'}


def test_the_longest_tokens_are_no_special_ones() -> None:
    longest = find_longest_tokens(trained("wordpiece"))
    assert longest == sorted(longest, key=lambda token: -len(token))
    assert not any(token.startswith("[") for token in longest)
