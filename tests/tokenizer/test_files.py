import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from maskwright.errors import TokenizerError
from maskwright.tokenizer.config import TokenizerKind
from maskwright.tokenizer.files import calling_library, read_max_length
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.helpers import KINDS, MIXED, trained

ROBERTA = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded(kind: TokenizerKind, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path)):
        loaded = Tokenizer.load(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.encode(MIXED).ids.tolist() == tokenizer.encode(MIXED).ids.tolist()
        assert loaded.vocab_size == tokenizer.vocab_size


def save_foreign(folder: Path) -> dict[str, Any]:
    """A byte-level tokenizer whose special tokens have RoBERTa's names."""
    text = json.dumps(trained("bpe").description, ensure_ascii=False)
    for ours, theirs in ROBERTA.items():
        text = text.replace(json.dumps(ours), json.dumps(theirs))
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return {"mask_token": {"content": "<mask>", "lstrip": True}, "pad_token": "<pad>"}


def test_other_names_of_special_tokens(tmp_path: Path) -> None:
    names = save_foreign(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<mask>"}))
    older = {**names, "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.mask_token, tokenizer.mask_id) == ("<mask>", 4)
    assert 4 in tokenizer.encode_prompt("a <mask>").ids
    assert 4 not in tokenizer.encode("a <mask>").ids
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert (again.cls_token, again.fingerprint) == ("<s>", tokenizer.fingerprint)


def test_special_tokens_that_nobody_names(tmp_path: Path) -> None:
    """RoBERTa's are known by their spelling; others are not guessed."""
    save_foreign(tmp_path)
    assert Tokenizer.load(tmp_path).mask_token == "<mask>"
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace("<mask>", "<hidden>").replace("<pad>", "<nothing>"))
    with pytest.raises(TokenizerError, match=r"has no pad_token \[PAD\], mask_token"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_without_an_unknown_token_gets_none(tmp_path: Path) -> None:
    """Bytes spell everything, so its padding stands in, and nothing is written of it."""
    save_foreign(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace("<unk>", "<thing>"))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.unk_token, tokenizer.unk_id) == ("<pad>", tokenizer.pad_id)
    tokenizer.save(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert "unk_token" not in again
    assert again["pad_token"] == "<pad>"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model": {"type": "None"}}'])
def test_damaged_files_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json") as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)


def test_no_tokenizer(tmp_path: Path) -> None:
    """What is downloaded from the hub has no older formats, so the remedy for them is told too."""
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json.*AutoTokenizer"):
        Tokenizer.load(tmp_path)
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json.*hf download"):
        Tokenizer.load(tmp_path / "nothing")


def test_the_longest_input_is_that_of_sentence_transformers_if_the_folder_has_one(
    tmp_path: Path,
) -> None:
    assert read_max_length(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    assert read_max_length(tmp_path) == 512
    file = tmp_path / "sentence_bert_config.json"
    file.write_text('{"max_seq_length": null}')
    assert read_max_length(tmp_path) == 512
    file.write_text('{"max_seq_length": 256}')
    assert read_max_length(tmp_path) == 256
    file.write_text('{"max_seq_length": "long"}')
    with pytest.raises(TokenizerError, match=r"sentence_bert_config\.json: max_seq_length = long"):
        read_max_length(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer", "model"])
def test_a_run_and_prepared_data_have_a_tokenizer(name: str, tmp_path: Path) -> None:
    trained("bpe").save(tmp_path / name)
    assert Tokenizer.load(tmp_path).fingerprint == trained("bpe").fingerprint


@pytest.mark.parametrize(
    ("key", "listed"),
    [
        ("additional_special_tokens", ["<a>", {"__type": "AddedToken", "content": "<b>"}]),
        ("extra_special_tokens", ["<a>", "<b>"]),
        ("extra_special_tokens", {"image_token": "<a>", "x_token": "<b>"}),
    ],
)
def test_special_tokens_without_an_id_are_refused(key: str, listed: Any, tmp_path: Path) -> None:
    trained("wordpiece").save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, key: listed}))
    with pytest.raises(TokenizerError, match=r"no <a>, <b>, which .* save_pretrained") as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
    saved: Any = AutoTokenizer.from_pretrained(str(tmp_path))
    saved.save_pretrained(str(tmp_path / "saved"))
    text = "a <a> b<b>"
    expected = saved(text, add_special_tokens=False)["input_ids"]
    ours = Tokenizer.load(tmp_path / "saved")
    assert ours.encode(text, split_special_tokens=False).ids.tolist() == expected
    ours.save(tmp_path / "again")
    theirs: Any = AutoTokenizer.from_pretrained(str(tmp_path / "again"))
    assert theirs(text, add_special_tokens=False)["input_ids"] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_that_only_the_settings_name_are_special(
    kind: TokenizerKind, tmp_path: Path
) -> None:
    trained(kind).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "added_tokens": []}))
    theirs: Any = AutoTokenizer.from_pretrained(str(tmp_path))
    for text in ("the[MASK] a [SEP]", "[PAD]"):
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        ours = Tokenizer.load(tmp_path)
        assert ours.encode(text, split_special_tokens=False).ids.tolist() == expected
        assert ours.encode_prompt(text).ids.tolist() == expected


def test_any_failure_of_the_library_is_one_line() -> None:
    with pytest.raises(TokenizerError, match=r"^x: two lines\.$"), calling_library("x"):
        raise type("PanicException", (BaseException,), {})("two\nlines.")  # as of Rust
    with pytest.raises(KeyboardInterrupt), calling_library("x"):
        raise KeyboardInterrupt
