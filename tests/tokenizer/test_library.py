import base64
from typing import Any

import pytest

from maskwright.config import MAX_VOCAB_SIZE
from maskwright.errors import TokenizerError
from maskwright.tokenizer.files import calling_library, check_ids, make_valid, measure_growth


def description(**steps: Any) -> dict[str, Any]:
    return {"model": {}, "normalizer": None, "pre_tokenizer": None, "decoder": None, **steps}


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap(replacement: bytes) -> str:
    trie = bytes(8)
    table = len(trie).to_bytes(4, "little") + trie + b"short\0" + replacement + b"\0"
    return base64.b64encode(table).decode()


class Terminated(BaseException):
    """What a signal handler raises."""


def test_signals_are_no_failures_of_the_library() -> None:
    with pytest.raises(Terminated), calling_library("it fails"):
        raise Terminated


GROWTHS = {
    "nothing": (None, 1),
    "lower case": ({"type": "Lowercase"}, 1),
    "compatibility": ({"type": "NFKC"}, 18),
    "shorter": (replace({"String": "ab"}, "c"), 1),
    "longer": (replace({"String": "ab"}, "12345"), 3),
    "anywhere": (replace({"Regex": ""}, "abc"), 4),
    "a prefix": ({"type": "Prepend", "prepend": "__"}, 3),
    "a table": ({"type": "Precompiled", "precompiled_charsmap": charsmap(b"x" * 40)}, 40),
    "a row of steps": (
        {"type": "Sequence", "normalizers": [{"type": "NFKD"}, replace({"String": "a"}, "bb")]},
        36,
    ),
}


@pytest.mark.parametrize("name", GROWTHS)
def test_growth_is_that_of_the_steps(name: str) -> None:
    normalizer, growth = GROWTHS[name]
    assert measure_growth(description(normalizer=normalizer)) == growth


def test_too_much_growth_and_too_long_words_are_refused() -> None:
    with pytest.raises(TokenizerError, match="turns one character into up to 2001 characters"):
        measure_growth(description(normalizer=replace({"Regex": "x"}, "y" * 2000)))
    with pytest.raises(TokenizerError, match="max_input_chars_per_word = 1001"):
        measure_growth(description(model={"max_input_chars_per_word": 1001}))
    step = {"type": "Precompiled", "precompiled_charsmap": "a"}
    with pytest.raises(TokenizerError, match="not base64"):
        measure_growth(description(normalizer=step))


@pytest.mark.parametrize(
    "place",
    [
        {"model": {"vocab": {"a": MAX_VOCAB_SIZE}}},
        {"added_tokens": [{"content": "a", "id": MAX_VOCAB_SIZE}]},
    ],
)
def test_an_id_that_no_model_has_an_embedding_for(place: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="ids must be below"):
        check_ids(place)
    check_ids({"model": {"vocab": {"a": MAX_VOCAB_SIZE - 1}}, "added_tokens": "no list"})


def test_any_failure_of_the_library_is_one_line() -> None:
    with pytest.raises(TokenizerError, match=r"^x: two lines\.$"), calling_library("x"):
        raise type("PanicException", (BaseException,), {})("two\nlines.")  # as of Rust
    with pytest.raises(KeyboardInterrupt), calling_library("x"):
        raise KeyboardInterrupt


def test_what_is_no_unicode_is_replaced() -> None:
    assert make_valid("a\ud800b") == "a\ufffdb"
    assert make_valid("aé") == "aé"
