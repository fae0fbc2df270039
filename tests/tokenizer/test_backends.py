"""What the kinds do to text before their vocabulary comes in."""

import re
import unicodedata
from collections import Counter

import pytest
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import ByteLevel

from maskwright.corpus.documents import clean_text
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.train import build_backend
from tests.tokenizer.helpers import KOREAN, english_texts


def normalize(kind: TokenizerKind, lowercase: bool, text: str) -> str:
    normalizer = build_backend(TokenizerConfig(kind=kind, lowercase=lowercase)).normalizer
    assert normalizer is not None
    return normalizer.normalize_str(text)


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_normalizes_european_text_as_bert_does(lowercase: bool) -> None:
    bert = BertNormalizer(lowercase=lowercase)
    for text in [
        "Ångström naïve ÉCOLE Straße İstanbul ёлка\tx\u200by bro\ufffdken \u061cعربي",
        *english_texts(),
    ]:
        normal = normalize("wordpiece", lowercase, text)
        assert re.sub(r"\s", " ", normal) == bert.normalize_str(text)


def test_wordpiece_leaves_hangul_whole() -> None:
    assert normalize("wordpiece", True, KOREAN) == KOREAN
    assert BertNormalizer().normalize_str("실") != "실"


def test_wordpiece_keeps_the_marks_of_other_scripts() -> None:
    for text in ("がぎ", "हिन्दी", "สวัสดี", "می\u200cخواهم", "ශ්\u200dරී", "👩\u200d🔬"):
        assert normalize("wordpiece", True, text) == text


def test_the_zero_width_space_separates_words_where_blanks_do_not() -> None:
    assert normalize("wordpiece", True, "ខ្មែរ\u200bភាសា soft\u200bhyphen") == "ខ្មែរ ភាសា softhyphen"


def test_a_prompt_is_normalized_as_its_cleaned_text_is() -> None:
    for text in (
        "ខ្មែរ\u200bភាសា",
        "ไทย\u200b\u200bab\u200bc",
        "می\u200cخ\u200fواهم",
        "soft\xadhyphen\ufeff",
    ):
        cleaned = clean_text(text, Counter())
        assert normalize("wordpiece", True, text).split() == cleaned.split()


def split(kind: TokenizerKind, text: str) -> list[str]:
    pre_tokenizer = build_backend(TokenizerConfig(kind=kind)).pre_tokenizer
    assert pre_tokenizer is not None
    return [text[start:stop] for _, (start, stop) in pre_tokenizer.pre_tokenize_str(text)]


def test_long_runs_of_scripts_without_blanks_are_cut_below_the_limit_of_wordpiece() -> None:
    text = "ภาษาไทยเป็นภาษาที่มีระดับเสียง" * 20
    words = split("wordpiece", f"ab{text}12")
    assert "".join(words) == f"ab{text}12"
    assert max(map(len, words)) <= 100
    assert not any(unicodedata.combining(word[0]) for word in words)
    assert split("wordpiece", "x" * 200 + " ภาษา") == ["x" * 200, "ภาษา"]


def test_bpe_keeps_marks_with_their_letters() -> None:
    text = "हिन्दी தமிழ் می\u200cخواهم it's 12  ❤️!"
    assert split("bpe", text) == [
        *("हिन्दी", " தமிழ்", " می\u200cخواهم", " it", "'s", " 12", " ", " ❤️!"),
    ]


def test_bpe_splits_text_without_marks_as_gpt2_does() -> None:
    gpt2 = ByteLevel(add_prefix_space=False)
    for text in english_texts():
        assert split("bpe", text) == [
            text[start:stop] for _, (start, stop) in gpt2.pre_tokenize_str(text)
        ]


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
