"""Exact and near duplicates, whatever block they are in: the smallest key stays."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.work import (
    CONNECT,
    EXACT,
    READ,
    Work,
)
from maskwright.selection.config import SelectionConfig
from maskwright.tokenizer.config import TokenizerConfig
from tests.preparation.helpers import (
    cut_small,
    make_work,
    prepare_quietly,
    run_stages,
    write_lines,
)

WORDS = [f"word{n}" for n in range(3000)]
SMALL = PrepareConfig(tokenizer=TokenizerConfig(vocab_size=300), workers=1)
NEAR_CONFIG = replace(SMALL, select=SelectionConfig(near_duplicates=0.8))


def write_documents(draw: random.Random, count: int) -> list[list[str]]:
    """Documents of 120 words: some new, some an earlier one with a few words changed."""
    documents: list[list[str]] = []
    for _ in range(count):
        if documents and draw.random() < 0.6:
            words = list(draw.choice(documents))
            for _ in range(draw.choice([0, 1, 1, 2, 4])):
                words[draw.randrange(len(words))] = draw.choice(WORDS)
        else:
            words = draw.choices(WORDS, k=120)
        documents.append(words)
    return documents


def dropped_by_key(work: Work) -> dict[tuple[int, int], tuple[str, int]]:
    """What is dropped, by block and index."""
    return {
        (block, index): found
        for block in range(len(work.plan.blocks))
        for index, found in work.read_drops(block).items()
    }


def list_texts(work: Work) -> dict[tuple[int, int], str]:
    return {
        (block, index): text
        for block in range(len(work.plan.blocks))
        for index, text in enumerate(work.read_texts(block))
    }


def test_copies_are_dropped_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 300)
    draw = random.Random(0)
    texts = draw.choices([f"text {n} of a few" for n in range(300)], k=800)
    work = make_work(tmp_path / "out", [write_lines(tmp_path / "a.jsonl", texts)], SMALL, EXACT)
    assert work.plan.num_ranges > 5
    found, listed = dropped_by_key(work), list_texts(work)
    first: dict[str, int] = {}
    for (block, index), text in listed.items():
        expected = None if text not in first else (EXACT, first[text])
        assert found.get((block, index)) == expected
        first.setdefault(text, block)
    assert len(found) == len(texts) - len(set(texts))


def test_copies_stay_on_request(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ["same"] * 4 + ["another"])
    config = replace(SMALL, corpus=CorpusConfig(deduplicate=False))
    work = make_work(tmp_path / "out", [path], config, READ)
    assert not work.plan.finds_exact
    assert dropped_by_key(work) == {}


def test_near_duplicates_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 10_000)
    draw = random.Random(0)
    documents = [draw.choices(WORDS, k=200) for _ in range(80)]
    copies = [[*words[:100], "changed", *words[101:]] for words in documents[:20]]
    texts = [" ".join(words) for words in (*documents, *copies)]
    path = write_lines(tmp_path / "a.jsonl", texts)
    manifest, _ = prepare_quietly([path], tmp_path / "out", NEAR_CONFIG)
    assert manifest.dropped == {"near duplicate": 20}
    assert sum(split.num_documents for split in manifest.splits.values()) == 80


def test_what_is_held_out_is_not_trained_on_mended(tmp_path: Path) -> None:
    texts = [f"Übung {n}: " + " ".join(WORDS[n : n + 30]) for n in range(45)]
    broken = [f"{one}\nWe use cookies.".encode().decode("cp1252") for one in texts[:5]]
    held_out = write_lines(tmp_path / "valid.jsonl", broken)
    both = write_lines(tmp_path / "both.jsonl", [*texts[5:], *broken])
    config = replace(
        SMALL,
        corpus=CorpusConfig(valid_text=(str(held_out),)),
        select=SelectionConfig(repair=True, drop_boilerplate=True),
    )
    manifest, _ = prepare_quietly([both], tmp_path / "out", config)
    assert manifest.dropped["in corpus.valid_text"] == 5
    assert manifest.splits["train"].num_documents == 40


def test_a_text_that_is_held_out_mended_is_not_trained_on(tmp_path: Path) -> None:
    """Mended it is a copy of what is held out; before that it is none."""
    mended = "schön, daß Sie alle da sind"
    held_out = write_lines(tmp_path / "valid.jsonl", [mended])
    texts = [mended.encode().decode("cp1252"), "another text", mended]
    config = replace(
        SMALL,
        corpus=CorpusConfig(valid_text=(str(held_out),), deduplicate=False),
        select=SelectionConfig(repair=True),
    )
    work = make_work(tmp_path / "out", [write_lines(tmp_path / "a.jsonl", texts)], config, EXACT)
    assert dropped_by_key(work) == {(1, 0): (EXACT, 0), (1, 2): (EXACT, 0)}


def test_copies_before_mending_are_no_copies(tmp_path: Path) -> None:
    """What a text was before it was mended only tells whether it is held out."""
    mended = "schön, daß Sie alle da sind"
    broken = mended.encode().decode("cp1252")
    config = replace(SMALL, select=SelectionConfig(repair=True))
    path = write_lines(tmp_path / "a.jsonl", ["one", broken, broken, mended])
    work = make_work(tmp_path / "out", [path], config, EXACT)
    assert sorted(dropped_by_key(work)) == [(0, 2), (0, 3)]


@pytest.mark.parametrize("repair", [False, True])
def test_near_copies_of_what_is_held_out_go_with_it(tmp_path: Path, repair: bool) -> None:
    held_out, both = tmp_path / "valid.txt", tmp_path / "both.txt"
    words = WORDS[:400]
    held_out.write_text(" ".join(words))
    copy = " ".join([*words[:200], "another", *words[201:]])
    others = (" ".join(f"other{n}{m}" for m in range(50)) for n in range(30))
    both.write_text("\n\n".join([" ".join(words), copy, *others]))
    config = replace(
        NEAR_CONFIG,
        corpus=CorpusConfig(valid_text=(str(held_out),)),
        select=SelectionConfig(repair=repair, near_duplicates=0.8),
    )
    manifest, _ = prepare_quietly([both], tmp_path / "out", config)
    assert manifest.dropped == {"in corpus.valid_text": 1, "near duplicate": 1}
    assert manifest.splits["train"].num_documents == 30


def test_what_is_held_out_by_name_stays_however_similar(tmp_path: Path) -> None:
    words = WORDS[:200]
    copies = [" ".join([*words[:n], "another", *words[n + 1 :]]) for n in (20, 90, 150)]
    held_out = write_lines(tmp_path / "valid.jsonl", [*copies[:2], copies[0]])
    path = write_lines(tmp_path / "a.jsonl", [copies[2], "another text"])
    config = replace(NEAR_CONFIG, corpus=CorpusConfig(valid_text=(str(held_out),)))
    work = make_work(tmp_path / "out", [path], config, f"{CONNECT}-1")
    while work.last_round() is None:
        run_stages(work, f"{CONNECT}-{len(list(work.folder.glob('connect-*'))) + 1}")
    assert work.read_drops(0) == {2: (EXACT, 0)}
    assert work.read_drops(1) == {0: (work.last_round(), 0)}
