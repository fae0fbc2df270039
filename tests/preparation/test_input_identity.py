import os
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.errors import CorpusError, TokenizerError
from maskwright.preparation.input_identity import fingerprint_input
from maskwright.tokenizer.config import TokenizerConfig
from tests.preparation.helpers import small_config


def test_content_counts_and_not_names(tmp_path: Path) -> None:
    for name, text in (("a.txt", "same"), ("b.txt", "same"), ("c.txt", "other")):
        (tmp_path / name).write_text(text)
    config = small_config()

    def fingerprint(*names: str) -> str:
        return fingerprint_input([str(tmp_path / name) for name in names], config, 0)

    assert fingerprint("a.txt") == fingerprint("b.txt")
    os.utime(tmp_path / "b.txt", (1, 1))
    assert fingerprint("a.txt") == fingerprint("b.txt")
    different = {fingerprint(*names) for names in (["a.txt"], ["c.txt"], ["a.txt", "c.txt"])}
    assert len(different | {fingerprint("c.txt", "a.txt")}) == 4


def test_configuration_counts_but_not_the_workers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")
    config = small_config()
    first = fingerprint_input([str(path)], config, 0)
    assert fingerprint_input([str(path)], replace(config, workers=7), 0) == first
    others = [
        replace(config, shard_megabytes=2),
        replace(config, corpus=CorpusConfig(deduplicate=False)),
        replace(config, tokenizer=TokenizerConfig(vocab_size=512)),
    ]
    assert all(fingerprint_input([str(path)], other, 0) != first for other in others)
    assert fingerprint_input([str(path)], config, 1) != first


def test_held_out_files_count_by_content(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("text" if name == "a" else "held out")

    def fingerprint(*held_out: str) -> str:
        corpus = CorpusConfig(valid_text=tuple(str(tmp_path / name) for name in held_out))
        return fingerprint_input([str(tmp_path / "a")], replace(small_config(), corpus=corpus), 0)

    assert fingerprint("b") == fingerprint("c") != fingerprint()
    assert fingerprint("a") != fingerprint("b")


def test_built_in_text_and_datasets_count_by_name() -> None:
    config = small_config()
    prints = {fingerprint_input([name], config, 0) for name in ("pydocs", "hf:a/b", "hf:a/c")}
    assert len(prints) == 3


def test_a_local_dataset_counts_by_its_files(tmp_path: Path) -> None:
    def fingerprint(name: str, field: str = "text") -> str:
        return fingerprint_input([f"hf:{tmp_path / name}#{field}"], small_config(), 0)

    for name in ("one", "two"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "train.jsonl").write_text('{"text": "a"}')
    first = fingerprint("one")
    assert fingerprint("two") == first
    assert fingerprint("one", "body") != first
    (tmp_path / "two" / "below" / "train.jsonl").write_text('{"text": "b"}')
    assert fingerprint("two") != first


def test_missing_inputs(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        fingerprint_input([str(tmp_path / "none.txt")], small_config(), 0)
    missing = replace(small_config(), tokenizer=TokenizerConfig(path=str(tmp_path)))
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json"):
        fingerprint_input(["pydocs"], missing, 0)
