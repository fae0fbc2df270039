import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import TokenizerError
from maskwright.tokenizer import bounds
from maskwright.tokenizer.bounds import (
    MAX_QUADRATIC_CHARACTERS,
    MAX_WHOLE_CHARACTERS,
    check_bounds,
    check_brackets,
)
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.published import PUBLISHED

Json = dict[str, Any]
EMPTY: Json = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []}


def replace(pattern: Json, content: str, times: int = 1) -> Json:
    step = {"type": "Replace", "pattern": pattern, "content": content}
    return {"type": "Sequence", "normalizers": [step] * times}


def charsmap(replacement: bytes, times: int = 1) -> Json:
    table = (8).to_bytes(4, "little") + bytes(8) + b"short\0" + replacement + b"\0"
    encoded = base64.b64encode(table).decode()
    step = {"type": "Precompiled", "precompiled_charsmap": encoded}
    return {"type": "Sequence", "normalizers": [step] * times}


def steps(kind: str, times: int) -> Json:
    return {"type": "Sequence", "pretokenizers": [{"type": kind}] * times}


def nest(depth: int) -> Json:
    step: Json = {"type": "Lowercase"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def model(kind: str = "WordPiece", **fields: object) -> Json:
    return {"model": {"type": kind, "vocab": {"a": 0}, **fields}}


def template(**fields: object) -> Json:
    return {"post_processor": {"type": "TemplateProcessing", **fields}}


STRIP = {"type": "Strip"}
LETTER, DOTS = {"String": "a"}, {"Regex": "."}
REFUSED = {
    "a letter seven times": ({"normalizer": replace(LETTER, "a" * 10, 7)}, "100 times longer"),
    "by a pattern": ({"normalizer": replace(DOTS, "a" * 17)}, "17 times longer"),
    "by nothing": ({"normalizer": replace({"Regex": "x*"}, "a" * 17)}, "18 times longer"),
    "by an empty text": ({"normalizer": replace({"String": ""}, "a" * 17)}, "18 times longer"),
    "before a text": ({"normalizer": {"type": "Prepend", "prepend": "x" * 99}}, "99 times longer"),
    "by a table": ({"normalizer": charsmap(b"x" * 19)}, "turns a character into 19"),
    "by two tables": ({"normalizer": charsmap(b"x" * 18, 2)}, "18 times longer"),
    "by bytes": ({"pre_tokenizer": steps("ByteLevel", 7)}, "32 times longer"),
    "by marks": ({"pre_tokenizer": steps("Metaspace", 7)}, "32 times longer"),
    "when decoded": ({"decoder": replace(LETTER, "a" * 17)}, "17 times longer"),
    "many steps": ({"normalizer": {"type": "Sequence", "normalizers": [STRIP] * 64}}, "65 steps"),
    "nested steps": ({"normalizer": nest(17)}, "nested deeper than 16"),
    "a slow pattern": ({"normalizer": replace({"Regex": "(x+x+)+y"}, "")}, "two repetitions"),
    "a slow cut": ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a)*b"}}}, "inside"),
    "a slow decoder": ({"decoder": replace({"Regex": "(a*)*b"}, "")}, "a repetition without end"),
    "many patterns": ({"normalizer": replace(DOTS, "a", 33)}, "33 regular expressions"),
    "a large id": (model(vocab={"a": 1 << 24}), "id 16777216"),
    "a large added id": ({"added_tokens": [{"content": "a", "id": 2**40}]}, "id 1099511627776"),
    "a long token": (model(vocab={"a" * 4097: 0}), "a token of 4,097 characters"),
    "a long piece": (model("Unigram", vocab=[["a" * 129, 0.0]]), "a token of 129 characters"),
    "long words": (model(max_input_chars_per_word=257), "max_input_chars_per_word = 257"),
    "a long prefix": (model(continuing_subword_prefix="#" * 33), "subword_prefix has 33"),
    "a long suffix": (model("BPE", end_of_word_suffix="/" * 33), "end_of_word_suffix has 33"),
    "a long added token": ({"added_tokens": [{"content": "a" * 4097, "id": 0}]}, "4,097"),
    "a long template": (template(single=[{}] * 33), "than 32 parts"),
    "a long written template": (template(pair="$A " * 33), "than 32 parts"),
    "many ids for a token": (template(special_tokens={"x": {"ids": [0] * 33}}), "than 32 tokens"),
}  # fmt: skip
ALLOWED = {
    "llama": {"normalizer": {"type": "Prepend", "prepend": "▁"}},
    "sentencepiece": {"normalizer": charsmap(b"x" * 18), "pre_tokenizer": steps("Metaspace", 1)},
    "blanks": {"normalizer": replace({"Regex": " {2,}"}, " ")},
    "marks": {"normalizer": replace({"String": " "}, "▁")},
    "quotes": {"normalizer": replace({"String": "``"}, '"', 2)},
    "bytes": {"pre_tokenizer": steps("ByteLevel", 1)},
    "deeper": {"normalizer": nest(8)},
    "words": model(max_input_chars_per_word=200),
}
WRONG: list[Json] = [
    {}, {"model": []}, {"model": {"vocab": 3}}, {"added_tokens": "x"}, {"normalizer": [1]},
    {"normalizer": {"normalizers": {"a": 1}}}, {"normalizer": {"type": ["Replace"], "pattern": []}},
    {"model": {"vocab": [3, [], [4, 5]]}}, {"post_processor": {"special_tokens": [1], "single": 3}},
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "a"}}, {"added_tokens": [3]},
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": 3}}, {"decoder": {"pattern": 3}},
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_take_too_much_is_refused(name: str) -> None:
    fields, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        check_bounds({**EMPTY, **fields})


@pytest.mark.parametrize(
    ("limit", "value", "fields"),
    [
        ("MAX_TOKENS", 2, model(vocab={"a": 0, "b": 1, "c": 2})),
        ("MAX_TOKENS", 2, model("Unigram", vocab=[["a", 0.0]] * 3)),
        ("MAX_TOKENS", 2, model("BPE", merges=["a b"] * 3)),
        ("MAX_TABLE_CHARACTERS", 5, model(vocab={"abc": 0, "abd": 1})),
        ("MAX_TRIE_NODES", 5, model("Unigram", vocab=[["abc", 0.0], ["abd", 0.0], ["éx", 0.0]])),
        ("MAX_ADDED_TOKENS", 2, {"added_tokens": [{"content": "a", "id": 0}] * 3}),
    ],
)
def test_tables_have_a_limit(
    limit: str, value: int, fields: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_bounds({**EMPTY, **fields})
    monkeypatch.setattr(bounds, limit, value)
    with pytest.raises(ValueError, match=r"more than|have more"):
        check_bounds({**EMPTY, **fields})


def test_brackets_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BRACKETS", 4)
    check_brackets(b'[[{}], {"a": 1}]')
    with pytest.raises(ValueError, match="5 lists and objects"):
        check_brackets(b"[[{}], {}, []]")


@pytest.mark.parametrize("name", ALLOWED)
def test_ordinary_steps_are_allowed(name: str) -> None:
    assert check_bounds({**EMPTY, **ALLOWED[name]}) == MAX_WHOLE_CHARACTERS


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tokenizers_are_allowed(name: str, tmp_path: Path) -> None:
    PUBLISHED[name](tmp_path)
    description = json.loads((tmp_path / "tokenizer.json").read_text())
    assert check_bounds(description) == MAX_WHOLE_CHARACTERS


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_wrong_is_left_to_the_library(fields: Json) -> None:
    check_bounds({**EMPTY, **fields})


@pytest.mark.parametrize(
    ("normalizer", "limit"),
    [
        (replace({"String": "q"}, "k" * 10), MAX_WHOLE_CHARACTERS // 10),
        (replace({"Regex": "a+b"}, ""), MAX_QUADRATIC_CHARACTERS),
        (replace({"Regex": "a+b"}, "abcd"), MAX_QUADRATIC_CHARACTERS // 2),
    ],
)
def test_texts_are_shorter_for_steps_that_take_more(normalizer: Json, limit: int) -> None:
    assert check_bounds({**EMPTY, "normalizer": normalizer}) == limit


def change(folder: Path, edit: Callable[[Json], object]) -> None:
    file = folder / "tokenizer.json"
    description = json.loads(file.read_text())
    edit(copy.deepcopy(description))
    edit(description)
    file.write_text(json.dumps(description))


def test_a_refusal_names_the_file_and_the_step(tmp_path: Path) -> None:
    PUBLISHED["bert"](tmp_path)
    change(tmp_path, lambda d: d.update(normalizer=replace(LETTER, "a" * 10, 7)))
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'tokenizer.json'} is refused: ")
    assert "normalizer.normalizers[1]" in str(caught.value)
