"""A tokenizer.json is a small program: what it may not do."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.config import MAX_VOCAB_SIZE
from maskwright.errors import InputError, TokenizerError
from maskwright.files import write_json
from maskwright.tokenizer.files import MAX_GROWTH, measure_growth
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.hostile.fuzzing.seeds import tokenizer as trained
from tests.hostile.sandbox import run_limited

Change = Callable[[dict[str, Any]], object]


def replacing(character: str, content: str, times: int = 1) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": {"String": character}, "content": content}
    return {"type": "Sequence", "normalizers": [step] * times}


def load_changed(folder: Path, change: Change) -> Tokenizer:
    description = copy.deepcopy(trained("wordpiece").description)
    change(description)
    folder.mkdir(exist_ok=True)
    write_json(folder / "tokenizer.json", description)
    return Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["model"]["vocab"].update(x=2**31), "has a token with the id 2147483648"),
        (lambda d: d["added_tokens"][0].update(id=MAX_VOCAB_SIZE), "ids must be below 16777216"),
        (lambda d: d.update(normalizer=replacing("a", "a" * 10, 6)), "into up to 1000000 charac"),
        (lambda d: d.update(normalizer={"type": "Prepend", "prepend": "x" * 9999}), "10000 charac"),
        (lambda d: d["model"].update(max_input_chars_per_word=10**6), "more than 1000"),
        (
            lambda d: d.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "Cannot parse precompiled_charsmap",  # a panic of the library
        ),
        (lambda d: d.update(added_tokens=None), "is not a tokenizer"),
        (lambda d: d.update(model=[]), "is not a tokenizer"),
    ],
)
def test_what_asks_for_too_much_is_refused(tmp_path: Path, change: Change, message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        load_changed(tmp_path, change)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "tokenizer.json"))


def test_ids_are_checked_before_the_library_counts_to_them(tmp_path: Path) -> None:
    description = copy.deepcopy(trained("character").description)
    description["model"]["vocab"]["x"] = 2**31
    write_json(tmp_path / "tokenizer.json", description)
    code = (
        "import sys\nfrom maskwright.tokenizer.tokenizer import Tokenizer\n"
        "from maskwright.errors import TokenizerError\n"
        "try: Tokenizer.load(sys.argv[1])\n"
        "except TokenizerError as error: print(error)\n"
    )
    assert "has a token with the id" in run_limited(code, str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["model"].update(unk_token="[NONE]"),  # a bare Exception of the library
        lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0}),  # a panic
        lambda d: d.update(
            normalizer={"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": ""}
        ),
    ],
)
def test_what_fails_on_a_text_fails_as_ours(tmp_path: Path, change: Change) -> None:
    tokenizer = load_changed(tmp_path, change)
    for encode in (tokenizer.encode, tokenizer.encode_prompt):
        with pytest.raises(TokenizerError, match="the tokenizer fails on this text: "):
            encode("日本語 " + "x" * 40)


def test_decoding_fails_as_ours(tmp_path: Path) -> None:
    strip = {"type": "Strip", "content": "k", "start": 2**40, "stop": 2**40}
    tokenizer = load_changed(tmp_path, lambda d: d.update(decoder=strip))
    with pytest.raises(TokenizerError, match="the tokenizer fails on these tokens: "):
        tokenizer.decode(range(5, 20))


@pytest.mark.parametrize(
    ("step", "growth"),
    [
        (None, 1),
        ({"type": "Lowercase"}, 1),
        ({"type": "NFKC"}, 18),
        (replacing("ab", "abcd"), 2),
        (replacing("a", ""), 1),
        (replacing("a", "bb", 5), 32),
        ({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, 2),
        ({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhYmMAZGUA"}, 3),
    ],
)
def test_growth_is_measured(step: dict[str, Any] | None, growth: int) -> None:
    description = {"model": {}, "pre_tokenizer": None, "decoder": None, "normalizer": step}
    assert measure_growth(description) == growth


def test_real_tokenizers_grow_less_than_the_limit() -> None:
    albert = [replacing("``", '"'), {"type": "NFKD"}, {"type": "Lowercase"}]
    charsmap = {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhYmMAZGUA"}
    sequence = {"type": "Sequence", "normalizers": [*albert, charsmap]}
    description = {"model": {}, "pre_tokenizer": None, "decoder": None, "normalizer": sequence}
    assert measure_growth(description) <= MAX_GROWTH


def test_a_text_that_grows_takes_bounded_memory(tmp_path: Path) -> None:
    """Millions of tokens would be made of these characters."""
    grow = replacing("q", " k" * 900)
    tokenizer = load_changed(tmp_path, lambda d: d.update(normalizer=grow))
    assert tokenizer.encode("kato mi").ids.tolist()
    with pytest.raises(TokenizerError, match="makes more than 64 tokens of a character"):
        tokenizer.encode("q" * 10_000)
    with pytest.raises(InputError, match="has 10,000 characters; the limit of this"):
        tokenizer.encode_prompt("q" * 10_000)


def test_text_that_is_no_unicode_is_encoded() -> None:
    tokenizer = trained("wordpiece")
    for text in ("kato \udcff mi", "\ud800"):
        valid = text.encode("utf-8", "replace").decode().replace("?", "\ufffd")
        assert tokenizer.encode(text).ids.tolist() == tokenizer.encode(valid).ids.tolist()
        assert len(tokenizer.encode_prompt(text).ids) == len(tokenizer.encode_prompt(valid).ids)
    assert tokenizer.token_id("\ud800") is None


def test_files_that_are_too_large_or_deep(tmp_path: Path) -> None:
    trained("wordpiece").save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    for content, message in (
        ("[" * 100_000, "nested too deeply"),
        ('{"pad_token": "\\ud800"}', "has no pad_token"),
        (
            json.dumps({"mask_token": {"content": ["[MASK]"]}, "unk_token": "nope"}),
            "unk_token nope",
        ),
    ):
        path.write_text(content)
        with pytest.raises(TokenizerError, match=message):
            Tokenizer.load(tmp_path)
