"""One block after the other: what is kept of it, what is dropped and why, and dumps."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import fingerprint_pair
from maskwright.errors import CorpusError
from maskwright.preparation.work import BEFORE_MENDING, KEYS, READ, Work
from maskwright.selection.config import QualityLimits, SelectionConfig
from tests.corpus.dumps import write_dump
from tests.limits import limited_file_size
from tests.preparation.helpers import (
    cut_small,
    make_work,
    prepare_quietly,
    run_stages,
    small_config,
    write_corpus,
    write_lines,
)

ODD = ["one\ntwo", 'a "quoted" \\ word', "낱말 \u200d 𝒳", "\ufffd", "x" * 70_000]
QUESTION = "which animal walked through the garden on the coldest day of the long winter"
GERMAN = "Der Fluss fließt durch die Stadt und dann weiter bis ans Meer."
ENGLISH = "The river flows through the town and goes on to the sea."


def read_texts(work: Work) -> list[str]:
    return [text for block in range(len(work.plan.blocks)) for text in work.read_texts(block)]


def read_facts(work: Work) -> list[dict[str, Any]]:
    return [work.facts(READ, block) for block in range(len(work.plan.blocks))]


def test_texts_come_back(tmp_path: Path) -> None:
    work = make_work(
        tmp_path / "out", [write_lines(tmp_path / "a.jsonl", ODD)], small_config(), READ
    )
    assert read_texts(work) == ODD
    [facts] = read_facts(work)
    assert facts["num_documents"] == len(ODD)
    assert facts["num_bytes"] == sum(len(text.encode()) for text in ODD)


def test_a_key_identifies_a_text_and_names_its_document(tmp_path: Path) -> None:
    work = make_work(
        tmp_path / "out", [write_lines(tmp_path / "a.jsonl", ODD)], small_config(), READ
    )
    keys = np.sort(work.read(READ, 0, KEYS), order="key")
    expected = [
        (*fingerprint_pair(text), index, len(text), len(text.encode()))
        for index, text in enumerate(ODD)
    ]
    assert keys.tolist() == expected


def test_a_text_that_is_mended_has_the_key_of_the_original_too(tmp_path: Path) -> None:
    broken, mended = "schÃ¶n, daÃŸ Sie da sind", "schön, daß Sie da sind"
    config = replace(small_config(), select=SelectionConfig(repair=True))
    path = write_lines(tmp_path / "a.jsonl", ["as it was", broken])
    work = make_work(tmp_path / "out", [path], config, READ)
    assert read_texts(work) == ["as it was", mended]
    keys = np.sort(work.read(READ, 0, KEYS), order="key")
    assert keys["key"].tolist() == [0, 1, int(BEFORE_MENDING) + 1]
    assert keys[2].tolist()[:2] == fingerprint_pair(broken)
    assert read_facts(work)[0]["counts"] == {"repaired by ftfy": 1}


def write_mixed(folder: Path) -> Path:
    """Files of several kinds with what cleaning, cutting and counting have to do with."""
    folder.mkdir()
    odd = ["", " \u00ad ", "a\x07bell \u0958 e\u0301", "long word " * 300, "twice", "twice"]
    texts = write_corpus(folder / "a.jsonl", 0.02).read_text().split("\n\n")
    write_lines(folder / "a.jsonl", [*texts, *odd])
    (folder / "b.md").write_text("# Title\n\nNot all of it   is tidy. \n\n\n\nEnd.")
    (folder / "c.csv").write_text('n,text\n1,"two\nlines"\n2,\n')
    (folder / "d.txt").write_bytes(b"one\n\ntwo \xff\n\n\xf0\x9d\x92\xb3\n" + b"more of it " * 100)
    (folder / "e.doc").write_text("of an unknown kind")
    (folder / "f.txt").touch()
    return folder


def test_reasons_are_counted_by_block(tmp_path: Path) -> None:
    (tmp_path / "asked.txt").write_text(f"{QUESTION}\n")
    select = SelectionConfig(
        language="en", language_confidence=0.1, quality=True, drop_boilerplate=True, describe=True,
        decontaminate=(str(tmp_path / "asked.txt"),),
        limits=QualityLimits(min_words=5, min_ended_lines=0),
    )  # fmt: skip
    texts = [ENGLISH, GERMAN, "Too short.", f"{ENGLISH} {QUESTION}.", "We use cookies.", "  "]
    texts.append(f"{ENGLISH}\nWe use cookies.")
    path = write_lines(tmp_path / "a.jsonl", texts)
    config = replace(small_config(), select=select, corpus=CorpusConfig(deduplicate=False))
    config = replace(config, corpus=replace(config.corpus, valid_fraction=0.0))
    config = replace(config, tokenizer=replace(config.tokenizer, vocab_size=64, min_frequency=1))
    manifest, _ = prepare_quietly([path], tmp_path / "out", config)
    assert manifest.dropped == {
        "another language": 1,
        "boilerplate lines dropped": 2,
        "empty": 2,
        "contains evaluation text": 1,
        "quality: too few words": 1,
    }
    told = json.loads((tmp_path / "out" / "selection.json").read_text())
    assert (told["read"], told["kept"]) == (7, 2)
    assert sum(told["languages"].values()) == 5
    [(_, shown)] = told["samples"]["contains evaluation text"]
    assert shown.startswith(f"[{' '.join(QUESTION.split()[:13])}] The ")  # why, and what
    assert [shown for _, shown in told["samples"]["another language"]] == [GERMAN]


def test_what_is_held_out_by_name_is_neither_judged_nor_mended(tmp_path: Path) -> None:
    texts = ["schÃ¶n, daÃŸ Sie da sind", GERMAN, ENGLISH]
    held_out = write_lines(tmp_path / "valid.jsonl", texts)
    path = write_lines(tmp_path / "a.jsonl", [f"{ENGLISH} {n}" for n in range(9)])
    select = SelectionConfig(repair=True, language="en", language_confidence=0.1)
    corpus = CorpusConfig(valid_text=(str(held_out),))
    work = make_work(
        tmp_path / "out", [path], replace(small_config(), corpus=corpus, select=select), READ
    )
    assert list(work.read_texts(0)) == texts
    assert work.facts(READ, 0)["tally"]["read"] == 0


def test_a_file_that_a_disk_has_no_room_for_is_named(tmp_path: Path) -> None:
    config = replace(small_config(), select=SelectionConfig(near_duplicates=0.8))
    path = write_corpus(tmp_path / "a.txt", 0.02)
    work = make_work(tmp_path / "out", [path], config)
    with limited_file_size(9000), pytest.raises(OSError, match=r"signatures|bands|keys") as caught:
        make_work(tmp_path / "again", [path], config, READ)
    assert caught.value.errno == errno.EFBIG
    assert not [each for each in (tmp_path / "again").rglob("*") if ".tmp" in each.name]
    assert not work.is_done(READ, 0)


def test_a_block_that_cannot_be_read_is_named_with_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 10_000)
    path = write_corpus(tmp_path / "a.txt")
    work = make_work(tmp_path / "out", [path], small_config())
    path.unlink()
    with pytest.raises(CorpusError, match=r"a\.txt \(bytes 0 to \d+,\d+\)"):
        run_stages(work, READ)


SYLLABLES = ("ka", "to", "mi", "ren", "su", "lo", "be", "la", "ta", "ri")
WORDS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES[:3]]
PAGES = [
    (f"Title {n}", " ".join(WORDS[n * k % 300] for k in range(1, 90)) + f" [[a|b]].\n{{{{t|{n}}}}}")
    for n in range(40)
]


def test_an_article_of_any_length_is_read_whole(tmp_path: Path) -> None:
    line = "\uac00" * 99
    pages = [("Long", "\n".join([line] * 30_000)), *PAGES[:3]]
    write_dump(tmp_path / "plain.xml", pages)
    work = make_work(tmp_path / "out", [tmp_path / "plain.xml"], small_config(), READ)
    texts = read_texts(work)
    assert len(texts) > 5  # it is cut
    assert "".join("".join(texts).split()).count("\uac00") == 99 * 30_000


def test_a_dump_that_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 4_000)
    write_dump(tmp_path / "plain.xml", PAGES[:30])
    held_out = write_dump(tmp_path / "held-out.xml", PAGES[25:])
    config = replace(small_config(), corpus=CorpusConfig(valid_text=(str(held_out),)))
    manifest, _ = prepare_quietly([tmp_path / "plain.xml"], tmp_path / "out", config)
    assert manifest.splits["valid"].num_documents == 15
    assert manifest.splits["train"].num_documents == 25
    assert manifest.dropped["in corpus.valid_text"] == 5
    assert manifest.source["corpus"]["valid_text"] == [str(held_out)]
