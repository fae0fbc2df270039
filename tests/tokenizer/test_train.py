import subprocess
import sys
from pathlib import Path

import pytest

from maskwright.errors import TokenizerError
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.train import train_tokenizer
from tests.tokenizer.helpers import KINDS, english_texts, trained


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_size_is_rounded_up(kind: TokenizerKind) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=390)
    tokenizer = train_tokenizer(english_texts()[:6], config)
    assert tokenizer.vocab_size == 448
    assert len(tokenizer.ordinary_ids) == 448 - 5  # the text supports the rounded size


def test_only_rounding_is_filled_up() -> None:
    text = ["abc abd " * 10]  # alphabet of 4 and 3 inner forms, ab, abc, abd: 10 tokens
    config = TokenizerConfig(vocab_size=32, min_frequency=1)
    with pytest.raises(TokenizerError) as error:
        train_tokenizer(text, config)
    supported = 5 + 4 + 3 + 3
    assert f"vocab_size = 32 is more than the text supports, which is {supported}" in str(error)


def test_fillers_are_no_ordinary_tokens() -> None:
    texts = english_texts()[:1]
    with pytest.raises(TokenizerError) as error:
        train_tokenizer(texts, TokenizerConfig(vocab_size=4096))
    supported = int(str(error.value).split("which is ")[1].split()[0])
    assert supported % 64
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocab_size=supported))
    assert tokenizer.vocab_size == -(-supported // 64) * 64
    assert len(tokenizer.ordinary_ids) == supported - 5
    assert "unused" in tokenizer.token(tokenizer.vocab_size - 1)


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


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_too_little_text_is_an_error_that_names_the_limit(kind: TokenizerKind) -> None:
    with pytest.raises(TokenizerError, match=r"vocab_size = 8192 is more than .* more text"):
        train_tokenizer(["a few words, no more"] * 3, TokenizerConfig(kind=kind))


def test_a_rare_script_does_not_fill_the_vocabulary() -> None:
    rare = "".join(chr(0x4E00 + index) for index in range(3000))
    texts = [*english_texts(), rare]
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocab_size=1024))
    ideographs = [t for t in tokenizer.tokens(range(1024)) if t >= "\u4e00"]
    assert len(ideographs) <= 1024 // 4


def test_the_sample_is_bounded() -> None:
    texts = english_texts()
    few = TokenizerConfig(vocab_size=512, sample_megabytes=0.05)
    first = train_tokenizer(texts, few, seed=1)
    assert first.fingerprint == train_tokenizer(texts, few, seed=1).fingerprint
    assert first.fingerprint != train_tokenizer(texts, few, seed=2).fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_trains_the_same_tokenizer(kind: TokenizerKind) -> None:
    code = (
        "from tests.tokenizer.helpers import trained; import sys;"
        "print(trained(sys.argv[1]).fingerprint)"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, kind]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == trained(kind).fingerprint
