"""Exact and near duplicates, whatever block they are in: the smallest key stays."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskwright import files
from maskwright.corpus.blocks import Block
from maskwright.corpus.config import CorpusConfig
from maskwright.preparation import tasks, work
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.stages import list_stages
from maskwright.preparation.tasks import find_exact
from maskwright.preparation.work import (
    BANDS,
    BEFORE_MENDING,
    CONNECT,
    DROPS,
    EXACT,
    KEY,
    KEYS,
    NEAR,
    PAIRS,
    PLAN_NAME,
    READ,
    SIGNATURES,
    VOCABULARY,
    Plan,
    Work,
)
from maskwright.selection.config import SelectionConfig
from maskwright.selection.near_duplicates import NUM_HASHES, Signer, hash_bands, to_pairs
from maskwright.selection.words import hash_words
from maskwright.tokenizer.config import TokenizerConfig
from tests.preparation.helpers import (
    DealtTasks,
    cut_small,
    make_work,
    prepare_quietly,
    run_stages,
    write_lines,
)
from tests.selection.near_duplicates_twin import find, find_near_duplicates, unite

WORDS = [f"word{n}" for n in range(3000)]
SMALL = PrepareConfig(tokenizer=TokenizerConfig(vocab_size=300), workers=1)
NEAR_CONFIG = replace(SMALL, select=SelectionConfig(near_duplicates=0.8))


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
    mended = "schön, daß Sie da waren"
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
    """The original of a repaired text is only compared with held-out documents."""
    mended = "schön, daß Sie da waren"
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


class Found:
    """A folder with what was read of blocks that there are not, for the search for duplicates."""

    def __init__(self, folder: Path, num_blocks: int, num_held_out: int, config: PrepareConfig):
        self.work = Work(folder)
        plan = Plan([], [Block(())] * num_blocks, num_held_out, {}, config, 0, 1.0, "/")
        for stage in (READ, EXACT, NEAR):
            (folder / stage).mkdir()
        plan.write(folder / PLAN_NAME)

    def find_exact(self, keys: dict[int, list[tuple[int, ...]]]) -> dict[int, int]:
        """What is dropped, given the records of blocks: by key, the document that stays."""
        for block in range(len(self.work.plan.blocks)):
            with self.work.writing(READ, block, KEYS) as writer:
                writer.add(np.array(keys.get(block, []), KEY))
        for number in range(self.work.plan.num_ranges):
            facts = find_exact(self.work, EXACT, number)
            assert facts == {"dropped": len(self.work.read(EXACT, number, DROPS))}
        return self._read_drops(EXACT)

    def _read_drops(self, stage: str) -> dict[int, int]:
        read = (self.work.read(stage, n, DROPS) for n in range(self.work.plan.num_ranges))
        return {key: by for drops in read for key, by in drops.tolist()}

    def find_near(self, signatures: np.ndarray, per_block: int) -> dict[int, int]:
        """Likewise, given signatures of documents."""
        threshold = self.work.plan.config.select.near_duplicates
        for block in range(len(self.work.plan.blocks)):
            rows = signatures[block * per_block : (block + 1) * per_block]
            self.work.path(READ, block, SIGNATURES.suffix).write_bytes(rows.tobytes())
            with self.work.writing(READ, block, BANDS) as writer:
                writer.add(hash_bands(rows, threshold, block << 32))
        return self._find_components({READ, EXACT})

    def connect(self, edges: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Likewise, given pairs of similar documents."""
        ones, others = np.array(edges, np.uint64).reshape(-1, 2).T
        near = self.work.plan.count_tasks(NEAR)
        for number in range(near):  # dealt to all of them
            with self.work.writing(NEAR, number, PAIRS) as writer:
                writer.add(to_pairs(ones[number::near], others[number::near]))
            self.work.report_done(NEAR, number, {})
        return self._find_components({READ, EXACT, NEAR})

    def _find_components(self, done: set[str]) -> dict[int, int]:
        for stage in list_stages(self.work):
            if stage.name == VOCABULARY:
                break
            if stage.name not in done:
                list(DealtTasks(1)(self.work, stage))
        last = self.work.last_round()
        assert last is not None
        return self._read_drops(last)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records at a time, so that few are many; and nothing waits for the disk."""
    for module, name, value in (
        (work, "RUN", 16),
        (work, "CHUNK", 24),
        (tasks, "_PAIRS_AT_ONCE", 5),
        (work, "_BLOCKS_A_RANGE", 2),
        (files, "flush", lambda path: None),
    ):
        monkeypatch.setattr(module, name, value)


# Few, of which some share their first half, at both ends of all ranges.
PRINTS = st.tuples(st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1]), st.integers(0, 2))
DOCUMENTS = st.lists(
    st.tuples(st.integers(0, 3), PRINTS, st.one_of(st.none(), PRINTS)), min_size=1, max_size=40
)
ONCE_FOR_ALL = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20
)


@ONCE_FOR_ALL
@given(DOCUMENTS, st.integers(0, 2), st.booleans())
def test_copies_are_those_of_a_dictionary(
    tiny: None,
    documents: list[tuple[int, tuple[int, int], tuple[int, int] | None]],
    num_held_out: int,
    deduplicate: bool,
) -> None:
    config = replace(SMALL, corpus=CorpusConfig(deduplicate=deduplicate))
    keys: dict[int, list[tuple[int, ...]]] = {block: [] for block in range(4)}
    first, originals = dict[tuple[int, int], int](), dict[int, tuple[int, int]]()
    normal: dict[int, tuple[int, int]] = {}
    for block, text, original in documents:
        index = sum(key >> 32 == block for key in normal)
        key = (block << 32) + index
        normal[key] = text
        keys[block].append((*text, key, 1, 1))
        if original is not None and block >= num_held_out:
            originals[key] = original
            keys[block].append((*original, key + int(BEFORE_MENDING), 1, 1))
        first[text] = min(key, first.get(text, key))
    expected: dict[int, set[int]] = {}
    limit = num_held_out << 32
    for key, text in normal.items():
        by = first[text]
        if by < key and (deduplicate or by < limit <= key):
            expected.setdefault(key, set()).add(by)
    for key, text in originals.items():
        if (by := first.get(text, limit)) < limit:
            expected.setdefault(key, set()).add(by)
    with tempfile.TemporaryDirectory() as name:
        found = Found(Path(name), 4, num_held_out, config).find_exact(keys)
    assert found.keys() == expected.keys()
    assert all(by in expected[key] for key, by in found.items())


@ONCE_FOR_ALL
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 16)), max_size=60),
    st.sampled_from([0.9, 0.95, 1.0]),
    st.integers(0, 99),
)
def test_near_duplicates_are_those_of_one_process(
    tiny: None, documents: list[tuple[int, int]], threshold: float, seed: int
) -> None:
    """Each signature is that of a document shortly before it, with some of its hashes changed."""
    draw = np.random.default_rng(seed)
    signatures = draw.integers(0, 1 << 32, (len(documents), NUM_HASHES), np.uint32)
    for number, (before, num_changed) in enumerate(documents):
        if number >= before:
            stay = draw.permutation(NUM_HASHES)[num_changed:]
            signatures[number, stay] = signatures[number - before, stay]
    draw.shuffle(signatures)
    keys = [(n // 15 << 32) + n % 15 for n in range(len(documents))]
    twin = find_near_duplicates(signatures, threshold)
    expected = {keys[n]: keys[first] for n, first in enumerate(twin) if first != n}
    config = replace(SMALL, select=SelectionConfig(near_duplicates=threshold))
    with tempfile.TemporaryDirectory() as name:
        assert Found(Path(name), 4, 0, config).find_near(signatures, 15) == expected


@ONCE_FOR_ALL
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=50), st.integers(1, 50))
def test_components_are_those_of_union_find(
    tiny: None, edges: list[tuple[int, int]], length: int
) -> None:
    """Of pairs in any order, and of a chain, which takes several rounds."""
    chain = np.random.default_rng(length).permutation(np.arange(50, 50 + length)).tolist()
    edges, first = [*edges, *pairwise(chain)], list(range(100))
    for edge in edges:
        unite(first, *edge)
    expected = {n: find(first, n) for n in range(100) if find(first, n) != n}
    config = replace(SMALL, select=SelectionConfig(near_duplicates=1.0))
    with tempfile.TemporaryDirectory() as name:
        assert Found(Path(name), 4, 0, config).connect(edges) == expected


def test_many_copies_of_one_document_are_found_a_few_at_a_time(tmp_path: Path, tiny: None) -> None:
    """All of them know the first one, so one place holds most of the pairs, and some hold none."""
    same = np.full((90, NUM_HASHES), 7, np.uint32)
    config = replace(SMALL, select=SelectionConfig(near_duplicates=0.95))
    found = Found(tmp_path, 3, 0, config).find_near(same, 30)
    assert set(found.values()) == {0}
    assert len(found) == 89


def test_what_is_dropped_does_not_depend_on_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the words of real documents, whose copies have copies."""
    draw, documents = random.Random(0), list[list[str]]()
    for _ in range(80):
        words = list(draw.choice(documents)) if draw.random() < 0.6 and documents else None
        words = words or draw.choices(WORDS, k=120)
        for _ in range(draw.choice([0, 1, 1, 2])):
            words[draw.randrange(len(words))] = draw.choice(WORDS)
        documents.append(words)
    path = write_lines(tmp_path / "a.jsonl", [" ".join(words) for words in documents])
    found: list[list[str]] = []
    for num_bytes in (3_000, 1_000_000):
        cut_small(monkeypatch, num_bytes)
        made = make_work(tmp_path / str(num_bytes), [path], NEAR_CONFIG, VOCABULARY)
        dropped = dropped_by_key(made)
        found.append([text for key, text in list_texts(made).items() if key not in dropped])
    assert found[0] == found[1]
    twin = find_near_duplicates(Signer()([hash_words(words) for words in documents]), 0.8)
    expected = [" ".join(documents[n]) for n, first in enumerate(twin) if first == n]
    assert found[0] == expected
    assert 30 < len(expected) < 60
