"""One block after the other becomes a shard of each split, and all of them a prepared folder."""

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from maskwright.cli.main import main
from maskwright.corpus.config import CorpusConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.tasks import CUT, IN_SENTENCES, BlockEncoder
from maskwright.preparation.work import ENCODE, VOCABULARY, Work
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import SPLITS, read_manifest
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.token_text import cut_sentences
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.preparation.helpers import (
    cut_small,
    make_work,
    prepare_quietly,
    read_documents,
    read_folder,
    read_shards,
    run_stages,
    small_config,
    write_corpus,
    write_lines,
)
from tests.preparation.test_tasks_read import QUESTION, write_mixed

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
    work = encode_texts(tmp_path, [*TEXTS, "\u061c"], replace(CONFIG, tokenizer=words))
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


def test_after_an_error_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert [*read_folder(work.folder / "train")] == ["00000.ends", "00000.starts", "00000.tokens"]


def test_the_end_of_a_document_is_held_out(tmp_path: Path) -> None:
    corpus = CorpusConfig(documents="file", valid_fraction=0.25)
    (tmp_path / "book.txt").write_text("\n".join(f"line {n} of a book" for n in range(80)))
    config = replace(CONFIG, corpus=corpus)
    work = make_work(tmp_path / "out", [tmp_path / "book.txt"], config, ENCODE)
    facts = work.facts(ENCODE, 0)
    assert facts["counts"][CUT] == 1
    sizes = {split: each["num_words"] for split, each in facts["splits"].items()}
    assert sizes == {"train": 300, "valid": 100}


def test_what_killed_tasks_leave_is_not_moved(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    work = make_work(out, [path], small_config(), ENCODE)
    (work.folder / "train" / ".00000.tokens.tmp-0123abcd").write_bytes(b"of a task that is gone")
    run_stages(work, "finish")
    assert not list(out.glob("*/.*tmp*"))
    assert read_manifest(out).splits["train"].num_documents > 0


@pytest.mark.parametrize("select", [SelectionConfig(), SelectionConfig(near_duplicates=0.8)])
def test_a_description_changes_nothing_of_the_data(tmp_path: Path, select: SelectionConfig) -> None:
    text = write_mixed(tmp_path / "text")
    corpus = CorpusConfig(max_document_characters=1_000)
    config = replace(small_config(), corpus=corpus, select=select)
    described = replace(config, select=replace(select, describe=True))
    first, _ = prepare_quietly([text], tmp_path / "out", config)
    assert first == prepare_quietly([text], tmp_path / "with", described)[0]
    without, asked_for = read_folder(tmp_path / "out"), read_folder(tmp_path / "with")
    told = asked_for.pop("selection.json")
    without.pop("selection.json", None)
    assert without == asked_for
    lines = [line for _ in "12" for line in prepare_quietly([text], tmp_path / "out", described)[1]]
    assert read_folder(tmp_path / "out") == {**asked_for, "selection.json": told}
    assert sum("reading the text again" in line for line in lines) == 1


def test_the_report_shows_what_was_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked.txt").write_text(f"{QUESTION}\n")
    texts, out = read_documents(write_corpus(tmp_path / "a.txt")), tmp_path / "out"
    texts.append(f"<script>alert(1)</script> {QUESTION}")
    corpus = write_lines(tmp_path / "corpus.jsonl", [*texts, texts[0]])
    with corpus.open("a") as file:
        file.write("no JSON\n")
    command = ["prepare", str(corpus), "--out", str(out), "--report", "--workers", "1"]
    command += ["--tokenizer.vocab_size", "256"]
    command += ["--select.decontaminate", str(tmp_path / "asked.txt")]
    assert main(command) == 0
    page = (out / "report.html").read_text()
    assert "contains evaluation text" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page
    assert "Languages" in page
    for reason in ("duplicate", f"bad JSON line (first corpus.jsonl:{len(texts) + 2})"):
        assert f'<th scope="row">{reason}</th><td>1</td>' in page
    assert "open it in a browser" in capsys.readouterr().out
    (out / "report.html").unlink()
    assert main(command) == 0  # prepared before: the page is written again
    assert (out / "report.html").read_text() == page
    (out / "selection.json").write_text("{}")
    assert main(command) == 0
    assert (out / "report.html").read_text() == page


def test_what_selection_counts_is_what_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 5_000)
    texts = read_documents(write_corpus(tmp_path / "a.txt"))
    path = write_lines(tmp_path / "a.jsonl", [*texts, *texts[:9], "  "])
    select = SelectionConfig(near_duplicates=0.8, describe=True)
    manifest, _ = prepare_quietly([path], tmp_path / "out", replace(small_config(), select=select))
    told = json.loads((tmp_path / "out" / "selection.json").read_text())
    splits = manifest.splits.values()
    assert told["read"] == len(texts) + 10
    assert told["kept"] == sum(split.num_documents for split in splits)
    assert told["characters"] == sum(split.num_characters for split in splits)
    assert sum(told["dropped"].values()) == told["read"] - told["kept"]
    assert told["dropped"]["duplicate"] == 9


ARTICLES = [f"Article {n}\nThe cat {n} sat. It met Dr. Dog {n}! Why {n}?" for n in range(40)]
SENTENCES = CorpusConfig(documents="sentences", valid_fraction=0.2)


def write_articles(path: Path) -> Path:
    """Write `ARTICLES` in the format of the suffix; returns `path`."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table({"text": ARTICLES}), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in ARTICLES)])
    elif path.suffix == ".jsonl":
        write_lines(path, ARTICLES)
    else:
        with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
            file.write("\n\n".join(ARTICLES))
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.parquet"])
def test_each_sentence_is_a_document(name: str, tmp_path: Path) -> None:
    """Those of an article are in one split, which is that of the article as a document."""
    path, found = write_articles(tmp_path / name), dict[str, dict[str, list[str]]]()
    for mode in ("blank_line", "sentences"):
        corpus, out = replace(SENTENCES, documents=mode), tmp_path / mode
        manifest, _ = prepare_quietly([path], out, replace(CONFIG, corpus=corpus))
        found[mode] = {split: read_shards(out, split) for split in SPLITS}
        for split, texts in found[mode].items():
            assert manifest.splits[split].num_documents == len(texts) > 0
        assert manifest.dropped == ({IN_SENTENCES: 40} if mode == "sentences" else {})
    for split in SPLITS:
        whole, cut = found["blank_line"][split], found["sentences"][split]
        assert cut == [" ".join(one.split()) for text in whole for one in cut_sentences(text)]
    assert sum(map(len, found["sentences"].values())) == 4 * len(ARTICLES)
