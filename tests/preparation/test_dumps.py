"""A Wikipedia dump to prepared data: on several cores, interrupted, of all layouts the same."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.corpus.readers.dispatch import read_source
from maskwright.corpus.sources import find_sources
from maskwright.errors import CorpusError
from maskwright.preparation import dumps
from maskwright.preparation.engines import LocalEngine
from maskwright.preparation.pipeline import prepare
from maskwright.shards.manifest import Manifest
from tests.corpus.dumps import write_dump, write_multistream
from tests.preparation.helpers import interrupt_at, small_config

SYLLABLES = ("ka", "to", "mi", "ren", "su", "lo", "be", "la", "ta", "ri")
WORDS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES[:3]]
PAGES = [
    (f"Title {n}", " ".join(WORDS[n * k % 300] for k in range(1, 90)) + f" {{{{t|{n}}}}} [[a|b]].")
    for n in range(40)
]


def tokens_of(folder: Path, manifest: Manifest) -> bytes:
    return b"".join(
        (folder / split / f"{shard.name}.tokens").read_bytes()
        for split, info in manifest.splits.items()
        for shard in info.shards
    )


def test_all_layouts_and_numbers_of_workers_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumps, "_PART_BYTES", 200)
    monkeypatch.setattr(dumps, "_PART_CHARACTERS", 2_000)
    write_multistream(tmp_path / "multi.xml.bz2", PAGES)
    write_multistream(tmp_path / "bare.xml.bz2", PAGES)
    (tmp_path / "bare-index.txt.bz2").unlink()
    write_dump(tmp_path / "single.xml.bz2", PAGES)
    write_dump(tmp_path / "plain.xml", PAGES)
    found: list[bytes] = []
    for name in ("multi.xml.bz2", "bare.xml.bz2", "single.xml.bz2", "plain.xml"):
        for workers in (1, 2):
            out = tmp_path / f"{name}-{workers}"
            manifest = prepare([str(tmp_path / name)], out, small_config(workers=workers))
            assert manifest.dropped.items() >= {"page that is no article": 1, "redirect": 1}.items()
            assert not any("ignored" in reason for reason in manifest.dropped)
            assert not (out / ".articles").exists()
            found.append(tokens_of(out, manifest))
    assert len(set(found)) == 1


def test_parts_that_were_read_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumps, "_PART_BYTES", 200)
    dump = tmp_path / "multi.xml.bz2"
    write_multistream(dump, PAGES)
    config = small_config(workers=1)
    whole = prepare([str(dump)], tmp_path / "whole", config)
    calls = interrupt_at(monkeypatch, dumps.PartReader, 5)
    with pytest.raises(KeyboardInterrupt):
        prepare([str(dump)], tmp_path / "again", config)
    next((tmp_path / "again").glob(".articles/0/00001.jsonl.zst")).unlink()  # as it may be lost
    again = prepare([str(dump)], tmp_path / "again", config)
    assert calls[:7] == [0, 1, 2, 3, 4, 1, 4]
    assert len(calls) == len(set(calls)) + 2
    assert tokens_of(tmp_path / "again", again) == tokens_of(tmp_path / "whole", whole)
    assert again.dropped == whole.dropped


def test_the_lines_have_the_field_that_is_asked_for(tmp_path: Path) -> None:
    write_dump(tmp_path / "plain.xml", PAGES)
    config = small_config(workers=1)
    kept: list[str] = []
    paths = [str(tmp_path / "plain.xml")]
    dumps.write_down_dumps(paths, tmp_path, config, Counter(), LocalEngine(1), kept.append)
    assert kept[-1].startswith("plain.xml: 40 articles, ")
    [part] = (tmp_path / ".articles" / "0").glob(".*.json")
    assert json.loads(part.read_text())["num_articles"] == 40


def test_an_article_of_any_length_is_read_as_by_one_core(tmp_path: Path) -> None:
    line = "\uac00" * 99 + "\n"
    dump = write_dump(tmp_path / "plain.xml", [("Long", line * 30_000), *PAGES[:3]])
    config = small_config(workers=1)
    read: list[list[str]] = []
    counted: list[Counter[str]] = []
    for written_down in (False, True):
        counts, paths = Counter[str](), [str(dump)]
        if written_down:
            engine = LocalEngine(1)
            paths, _ = dumps.write_down_dumps(paths, tmp_path, config, counts, engine, print)
        sources = find_sources(paths)
        documents = [
            document for one in sources for document in read_source(one, config.corpus, counts)
        ]
        read.append([document.text for document in documents])
        counted.append(counts)
    assert len(read[0]) > len(PAGES[:3]) + 2
    assert read[0] == read[1]
    assert counted[0] == counted[1]


def test_a_dump_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "plain.xml", PAGES)
    config = small_config(workers=1)
    once = prepare([str(dump)], tmp_path / "once", config)
    twice = prepare([str(dump), f"{tmp_path}/./plain.xml"], tmp_path / "twice", config)
    assert twice.dropped == once.dropped
    assert tokens_of(tmp_path / "twice", twice) == tokens_of(tmp_path / "once", once)


def test_dumps_are_written_down_wherever_they_are_named(tmp_path: Path) -> None:
    for name in ("part1.xml", "part2.xml", "held-out.xml"):
        write_dump(tmp_path / name, PAGES[:9] if name == "part1.xml" else PAGES[9:])
    (tmp_path / "part3.txt").write_text("text")
    (tmp_path / "pydocs").mkdir()
    named = {"a": str(tmp_path / "part*"), "b": str(tmp_path / "[p]art2.xml"), "c": "pydocs"}
    config = small_config(workers=1)
    corpus = replace(config.corpus, valid_text=(str(tmp_path / "held-out.xml"), named["b"]))
    counts = Counter[str]()
    paths, changed = dumps.write_down_dumps(
        [*named.values(), "-"],
        tmp_path / "out",
        replace(config, corpus=corpus),
        counts,
        LocalEngine(1),
        print,
    )
    first, second, third = (str(tmp_path / "out" / ".articles" / n) for n in "012")
    assert paths == [first, second, str(tmp_path / "part3.txt"), second, "pydocs", "-"]
    assert changed == replace(config, corpus=replace(corpus, valid_text=(third, second)))
    assert counts["redirect"] == 3


def test_a_dump_that_is_held_out_is_read_on_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumps, "_PART_CHARACTERS", 2_000)
    dump = write_dump(tmp_path / "plain.xml", PAGES[:30])
    held_out = write_dump(tmp_path / "held-out.xml", PAGES[25:])
    config = small_config(workers=2)
    corpus = replace(config.corpus, valid_text=(str(held_out),))
    lines: list[str] = []
    manifest = prepare(
        [str(dump)], tmp_path / "out", replace(config, corpus=corpus), report=lines.append
    )
    assert manifest.splits["valid"].num_documents == 15
    assert manifest.dropped["in corpus.valid_text"] == 5
    assert manifest.source["corpus"]["valid_text"] == [str(held_out)]
    assert any(line.startswith("held-out.xml: 15 articles") for line in lines)
    read = [line for line in lines if re.search(r"parts? read \(\d+%, [\d:]+ left\)$", line)]
    assert "(100%" in read[-1]


def test_messages_name_what_was_given(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "plain.xml", PAGES[:3])
    config = small_config(workers=1)
    corpus = replace(config.corpus, valid_text=(str(dump),))
    with pytest.raises(CorpusError) as caught:
        prepare([str(dump)], tmp_path / "out", replace(config, corpus=corpus))
    assert str(caught.value).startswith(f"{dump}: nothing is left to train on")


def test_a_dump_without_articles_is_one_line(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "plain.xml", [])
    with pytest.raises(CorpusError, match=r"plain\.xml holds no article"):
        prepare([str(dump)], tmp_path / "out", small_config(workers=1))
