"""What the kinds do to text before their vocabulary comes in."""

import re
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import ByteLevel

from maskwright.corpus.cleaning import clean_text
from maskwright.errors import ConfigError, TokenizerError
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.train import build_backend, describe_shortage, train_tokenizer
from tests.tokenizer.helpers import KINDS, KOREAN, english_texts, trained


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_size_is_rounded_up(kind: TokenizerKind) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=390)
    tokenizer = train_tokenizer(english_texts()[:6], config)
    assert tokenizer.vocab_size == 448
    assert len(tokenizer.ordinary_ids) == 448 - 5  # the text supports the rounded size


def test_a_text_that_gives_fewer_tokens_gives_those() -> None:
    text = ["abc abd " * 10]  # alphabet of 4 and 3 inner forms, ab, abc, abd: 10 tokens
    config = TokenizerConfig(vocab_size=512, min_frequency=1)
    tokenizer = train_tokenizer(text, config)
    assert (len(tokenizer.ordinary_ids), tokenizer.vocab_size) == (4 + 3 + 3, 64)
    assert "unused" in tokenizer.token(tokenizer.vocab_size - 1)  # fillers, no ordinary tokens
    assert describe_shortage(tokenizer, config) == "the text gives 64 of 512 tokens"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_what_a_small_text_gives_is_what_it_is_asked_for_at_most(kind: TokenizerKind) -> None:
    texts = english_texts()[:1]
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=8192))
    num_tokens = len(tokenizer.ordinary_ids) + 5
    assert tokenizer.vocab_size == -(-num_tokens // 64) * 64 < 8192
    fitting = TokenizerConfig(kind=kind, vocab_size=num_tokens)
    again = train_tokenizer(texts, fitting)
    assert again.vocab_size == tokenizer.vocab_size
    assert describe_shortage(again, fitting) is None


def test_characters_take_what_there_is() -> None:
    text = "abc, abc\n" * 5 + "z"
    tokenizer = train_tokenizer([text], TokenizerConfig(kind="character"))
    assert tokenizer.vocab_size == 64
    assert tokenizer.tokens(tokenizer.ordinary_ids.tolist()) == ["a", "b", "c", "\n", " ", ","]
    assert tokenizer.encode("cz").ids.tolist() == [7, 1]  # z occurs only once


@pytest.mark.parametrize("kind", KINDS)
def test_no_text(kind: TokenizerKind) -> None:
    with pytest.raises(TokenizerError, match="no text"):
        train_tokenizer([], TokenizerConfig(kind=kind))


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_text_without_a_word_is_an_error(kind: TokenizerKind) -> None:
    with pytest.raises(TokenizerError, match=r"holds no word .* Give more text"):
        train_tokenizer([" \n" * 3], TokenizerConfig(kind=kind, min_frequency=3))


def test_the_setting_that_leaves_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.min_frequency = 3 .* Set it to 1"):
        train_tokenizer(["rare"], TokenizerConfig(kind="character", min_frequency=3))
    syllables = " ".join(chr(0xAC00 + n) + chr(0xAC00 + 3_999 - n) for n in range(2_000))
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size = 128 leaves room for"):
        train_tokenizer([syllables], TokenizerConfig(kind="unigram", vocab_size=128))


def test_a_rare_script_does_not_fill_the_vocabulary() -> None:
    rare = "".join(chr(0x4E00 + index) for index in range(3000))
    texts = [*english_texts(), rare]
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocab_size=1024))
    ideographs = [t for t in tokenizer.tokens(range(1024)) if t >= "\u4e00"]
    assert 0 < len(ideographs) <= 1024 // 2


def test_characters_that_are_words_take_one_token_each() -> None:
    text = " ".join(chr(0x4E00 + index) for index in range(600)) + " "
    tokenizer = train_tokenizer([text * 3], TokenizerConfig(vocab_size=1024))
    assert len(tokenizer.ordinary_ids) == 512


def test_another_process_trains_the_same_tokenizers() -> None:
    code = (
        "from tests.tokenizer.helpers import KINDS, trained\n"
        "print(*(trained(kind).fingerprint for kind in KINDS))"
    )
    command, root = [sys.executable, "-c", code], Path(__file__).parents[2]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [trained(kind).fingerprint for kind in KINDS]


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
        *("हिन्दी", " தமிழ்", " می\u200cخواهم", " it", "'s", " 12", " ", " ❤️!")
    ]


def test_bpe_splits_text_without_marks_as_gpt2_does() -> None:
    gpt2 = ByteLevel(add_prefix_space=False)
    for text in english_texts():
        assert split("bpe", text) == [
            text[start:stop] for _, (start, stop) in gpt2.pre_tokenize_str(text)
        ]


@pytest.mark.parametrize("kind", ["bpe", "character"])
def test_the_others_only_compose_and_lowercase(kind: TokenizerKind) -> None:
    assert normalize(kind, True, "Cafe\u0301  ﬁ\n") == "café  ﬁ\n"
    assert normalize(kind, False, "Cafe\u0301  ﬁ\n") == "Café  ﬁ\n"


def test_unigram_sets_punctuation_apart() -> None:
    pre_tokenizer = build_backend(TokenizerConfig(kind="unigram")).pre_tokenizer
    assert pre_tokenizer is not None
    words = [word for word, _ in pre_tokenizer.pre_tokenize_str('a (b-c), "d')]
    assert words == ["▁a", "▁(", "b", "-", "c", ")", ",", '▁"', "d"]
