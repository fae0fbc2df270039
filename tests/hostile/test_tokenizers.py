"""A tokenizer.json is a small program: what it may not do."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import TokenizerError
from maskwright.files import write_json
from maskwright.runs import find_model
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.command import Cli
from tests.hostile.fuzzing.seeds import tokenizer as trained
from tests.interop.models import NATIVE, write_model
from tests.interop.test_classifier_source import write_classifier

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


# Each way to a tokenizer that a stranger wrote; the folder of the model is the word MODEL.
WAYS = {
    "fill": ["fill", "MODEL", "a [MASK] b"],
    "score": ["score", "MODEL", "a b"],
    "embed": ["embed", "MODEL", "a b", "--out", "OUT.npy"],
    "predict": ["predict", "LABELS", "a b"],
    "evaluate": ["evaluate", "MODEL", "--data", "TEXT"],
    "evaluate labels": ["evaluate", "LABELS", "--suite", "labels", "--data", "TABLE"],
    "serve": ["serve", "MODEL", "--port", "0"],
    "serve labels": ["serve", "LABELS", "--port", "0"],
    "export": ["export", "MODEL", "--to", "hf", "--out", "OUT"],
    "finetune": [
        "finetune",
        "MODEL",
        "--task",
        "classification",
        "--train",
        "TABLE",
        "--out",
        "OUT",
    ],
    "init from": ["pretrain", "TEXT", "--init-from", "MODEL", "--runs-dir", "OUT", "--name", "x"],
    "teacher": ["pretrain", "TEXT", "--teacher", "MODEL", "--runs-dir", "OUT", "--name", "x"],
    "prepare": ["prepare", "TEXT", "--tokenizer.path", "MODEL", "--out", "OUT"],
    "inspect": ["tokenizer", "inspect", "MODEL"],
    "compare": ["tokenizer", "compare", "MODEL", "LABELS", "--on", "TEXT"],
}
STEPS = {
    "growth": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10},
    "time": {"type": "Replace", "pattern": {"Regex": "(a+)+b"}, "content": ""},
}


@pytest.fixture(scope="module", params=STEPS)
def stranger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two models whose tokenizers grow a text, or take exponential time."""
    root = tmp_path_factory.mktemp("stranger")
    (root / "text.txt").write_text("a b\n" * 100)
    (root / "table.tsv").write_text("label\ttext\n" + "x\ta b\ny\tb a\n" * 20)
    write_model(root / "model", NATIVE["bert"])
    write_classifier(root / "labels", NATIVE["bert"], level="text")
    steps = {"type": "Sequence", "normalizers": [STEPS[request.param]] * 7}
    for name in ("model", "labels"):
        file = root / name / "tokenizer.json"
        write_json(file, {**json.loads(file.read_text()), "normalizer": steps})
    return root


@pytest.mark.parametrize("way", WAYS)
def test_no_way_uses_a_tokenizer_that_is_not_bounded(
    way: str, stranger: Path, tmp_path: Path, cli: Cli
) -> None:
    places = {"TEXT": "text.txt", "TABLE": "table.tsv", "MODEL": "model", "LABELS": "labels"}
    files = {word: str(stranger / name) for word, name in places.items()}
    files["OUT"] = str(tmp_path / "out")
    line = cli.refuse(*(files.get(word, word) for word in WAYS[way]))
    assert "tokenizer.json is refused: " in line
    assert "normalizer.normalizers" in line


def test_no_model_of_the_hub_uses_one(
    stranger: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(name: str) -> Path:
        fetched.append(name)
        return stranger / "model"

    monkeypatch.setattr(find_model, "download_model", fetch)
    line = cli.refuse("fill", "hf:me/stranger", "a [MASK] b")
    assert "tokenizer.json is refused: " in line
    assert fetched
