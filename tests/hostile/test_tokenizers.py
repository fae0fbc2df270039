"""A tokenizer.json is a small program: what it may not do."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import TokenizerError
from maskwright.files import write_json
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.hostile.fuzzing.seeds import tokenizer as trained

Change = Callable[[dict[str, Any]], object]


def load_changed(folder: Path, change: Change) -> Tokenizer:
    description = copy.deepcopy(trained("wordpiece").description)
    change(description)
    folder.mkdir(exist_ok=True)
    write_json(folder / "tokenizer.json", description)
    return Tokenizer.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(  # a panic of the library
            normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
        ),
        lambda d: d.update(added_tokens=None),
        lambda d: d.update(model=[]),
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, change: Change) -> None:
    with pytest.raises(TokenizerError, match="is not a tokenizer") as caught:
        load_changed(tmp_path, change)
    assert str(caught.value).startswith(str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0}),  # a panic
        lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0}, normalizer=None),
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
