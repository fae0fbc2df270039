"""One block after the other becomes a shard of each split."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.encode import CUT, BlockEncoder
from maskwright.preparation.work import ENCODE, VOCABULARY, Work
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.preparation.helpers import cut_small, make_work, read_folder, write_lines

TEXTS = ["the cat sat", "on the mat,", "the end.", "\U0001f600"]
LETTERS = TokenizerConfig(kind="character", min_frequency=1)
CONFIG = PrepareConfig(tokenizer=LETTERS, corpus=CorpusConfig(valid_fraction=0.0))


def encode_texts(folder: Path, texts: list[str], config: PrepareConfig = CONFIG) -> Work:
    path = write_lines(folder / "a.jsonl", texts)
    return make_work(folder / "out", [path], config, ENCODE)


def test_a_block_becomes_a_shard(tmp_path: Path) -> None:
    work = encode_texts(tmp_path, [*TEXTS, TEXTS[0]])
    facts = work.facts(ENCODE, 0)
    assert facts["counts"] == {"duplicate": 1}
    [(split, described)] = facts["splits"].items()
    shard = described.pop("shard")
    assert (split, shard["name"], shard["num_documents"]) == ("train", "00000", 4)
    assert described == {"num_characters": 31, "num_bytes": 34, "num_words": 9}
    ids = np.fromfile(work.folder / "train" / "00000.tokens", "<u2")
    assert len(ids) == shard["num_tokens"]
    tokenizer = Tokenizer.load(work.folder / "tokenizer")
    assert tokenizer.decode(ids[:11]) == TEXTS[0]
    counts = np.fromfile(work.path(ENCODE, 0, "counts"), np.uint32)
    assert counts.tolist() == np.bincount(ids, minlength=tokenizer.vocab_size).tolist()


def test_a_document_without_tokens_is_dropped(tmp_path: Path) -> None:
    words = TokenizerConfig(vocab_size=64, min_frequency=1)
    work = encode_texts(tmp_path, [*TEXTS, "\u200d"], replace(CONFIG, tokenizer=words))
    facts = work.facts(ENCODE, 0)
    assert facts["counts"] == {"without tokens": 1}
    assert facts["splits"]["train"]["shard"]["num_documents"] == 4


def test_a_block_of_which_nothing_stays_has_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 1)
    held_out = write_lines(tmp_path / "held-out.jsonl", TEXTS)
    copies = write_lines(tmp_path / "copies.jsonl", TEXTS[:1])
    other = write_lines(tmp_path / "other.jsonl", ["another cat"])
    config = replace(CONFIG, corpus=CorpusConfig(valid_text=(str(held_out),)))
    work = make_work(tmp_path / "out", [copies, other], config, ENCODE)
    *_, of_copies, last = work.all_facts(ENCODE)
    assert of_copies["splits"] == {}
    assert of_copies["counts"] == {"in corpus.valid_text": 1}
    assert last["splits"]["train"]["shard"]["num_documents"] == 1
    names = {path.name for path in (work.folder / "train").iterdir()}
    assert len(names) == 3


@pytest.mark.parametrize("kinds", [("tokens", "ends", "starts")])
def test_after_an_error_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    path = write_lines(tmp_path / "a.jsonl", TEXTS)
    work = make_work(tmp_path / "out", [path], CONFIG, VOCABULARY)
    encode_text = Tokenizer.encode

    def fail(self: Tokenizer, text: str) -> Any:
        if text == TEXTS[2]:
            raise ZeroDivisionError
        return encode_text(self, text)

    (work.folder / ENCODE).mkdir()
    monkeypatch.setattr(Tokenizer, "encode", fail)
    with pytest.raises(ZeroDivisionError):
        BlockEncoder(work)(0)
    assert not read_folder(work.folder / "train")
    monkeypatch.undo()
    BlockEncoder(work)(0)
    assert sorted(read_folder(work.folder / "train")) == sorted(f"00000.{kind}" for kind in kinds)


def test_the_end_of_a_document_is_held_out(tmp_path: Path) -> None:
    corpus = CorpusConfig(documents="file", valid_fraction=0.25)
    (tmp_path / "book.txt").write_text("\n".join(f"line {n} of a book" for n in range(80)))
    config = replace(CONFIG, corpus=corpus)
    work = make_work(tmp_path / "out", [tmp_path / "book.txt"], config, ENCODE)
    facts = work.facts(ENCODE, 0)
    assert facts["counts"][CUT] == 1
    sizes = {split: each["num_words"] for split, each in facts["splits"].items()}
    assert sizes == {"train": 300, "valid": 100}
