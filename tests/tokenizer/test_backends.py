"""What the kinds do to text before their vocabulary comes in."""

import pytest
from tokenizers.normalizers import BertNormalizer

from maskwright.tokenizer.backends import build_backend
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from tests.tokenizer.helpers import KOREAN, english_texts


def normalize(kind: TokenizerKind, lowercase: bool, text: str) -> str:
    normalizer = build_backend(TokenizerConfig(kind=kind, lowercase=lowercase)).normalizer
    assert normalizer is not None
    return normalizer.normalize_str(text)


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_normalizes_european_text_as_bert_does(lowercase: bool) -> None:
    bert = BertNormalizer(lowercase=lowercase)
    for text in ["Ångström naïve ÉCOLE Straße İstanbul ёлка\tx\u200by", *english_texts()]:
        assert normalize("wordpiece", lowercase, text) == bert.normalize_str(text)


def test_wordpiece_leaves_hangul_whole() -> None:
    assert normalize("wordpiece", True, KOREAN) == KOREAN.replace("\n", " ")
    assert BertNormalizer().normalize_str("실") != "실"


def test_wordpiece_keeps_the_marks_of_other_scripts() -> None:
    for text in ("がぎ", "हिन्दी", "สวัสดี"):
        assert normalize("wordpiece", True, text) == text


def test_cased_wordpiece_keeps_accents() -> None:
    assert normalize("wordpiece", False, "Café e\u0301") == "Café é"


@pytest.mark.parametrize("kind", ["bpe", "character"])
def test_the_others_only_compose_and_lowercase(kind: TokenizerKind) -> None:
    assert normalize(kind, True, "Cafe\u0301  ﬁ\n") == "café  ﬁ\n"
    assert normalize(kind, False, "Cafe\u0301  ﬁ\n") == "Café  ﬁ\n"


def test_unigram_folds_compatible_characters() -> None:
    assert normalize("unigram", True, "ﬁＡ") == "fia"


def test_unigram_sets_punctuation_apart() -> None:
    pre_tokenizer = build_backend(TokenizerConfig(kind="unigram")).pre_tokenizer
    assert pre_tokenizer is not None
    words = [word for word, _ in pre_tokenizer.pre_tokenize_str('a (b-c), "d')]
    assert words == ["▁a", "▁(", "b", "-", "c", ")", ",", '▁"', "d"]
