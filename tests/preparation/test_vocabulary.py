"""What is held out, and the tokenizer: what it is trained on, and what is known of an extension."""

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus import blocks
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.fingerprints import fingerprint_text
from maskwright.corpus.stream import (
    Split,
    choose_valid_fraction,
    estimate_tokens,
    is_validation,
)
from maskwright.errors import CorpusError
from maskwright.preparation import vocabulary
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.vocabulary import Splits, cut_tail, make_vocabulary, settle_splits
from maskwright.preparation.work import EXACT, READ, VOCABULARY, Work
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.preparation.helpers import (
    cut_small,
    make_work,
    prepare_quietly,
    read_documents,
    small_config,
    write_corpus,
    write_lines,
)

MEGABYTES = 0.03


def configure(megabytes: float = MEGABYTES) -> PrepareConfig:
    tokenizer = TokenizerConfig(vocab_size=256, sample_megabytes=megabytes)
    return replace(small_config(), tokenizer=tokenizer)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the tokenizer is trained on."""
    found = list[str]()

    def train(texts: Iterable[str], config: TokenizerConfig, seed: int) -> Tokenizer:
        found[:] = texts
        return train_tokenizer(found, config, seed)

    monkeypatch.setattr(vocabulary, "train_tokenizer", train)
    return found


def size(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def test_the_sample_depends_on_the_text_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: list[str]
) -> None:
    """Not on the blocks, nor on how much of it is put aside when the text is read."""
    path, found = write_corpus(tmp_path / "a.txt", 0.2), list[list[str]]()
    for num_bytes, share in ((5_000, 1.0), (5_000, 0.4), (90_000, 1.0), (90_000, 0.2)):
        cut_small(monkeypatch, num_bytes)
        folder = tmp_path / f"{num_bytes}-{share}"
        make_work(folder, [path], configure(), VOCABULARY, sample_share=share)
        found.append([*sampled])
    assert all(texts == found[0] for texts in found[1:])
    assert 0.9 * MEGABYTES * 1e6 < size(found[0]) <= MEGABYTES * 1e6
    documents = read_documents(path)
    places = [documents.index(text) for text in found[0]]
    assert places == sorted(places)
    assert places[-1] - places[0] > 0.8 * len(documents)  # from all over the text


def test_what_is_put_aside_bounds_the_sample(tmp_path: Path, sampled: list[str]) -> None:
    path = write_corpus(tmp_path / "a.txt", 0.2)
    make_work(tmp_path / "whole", [path], configure(1.0), VOCABULARY)
    whole = [*sampled]
    make_work(tmp_path / "out", [path], configure(1.0), VOCABULARY, sample_share=1 / 16)
    assert set(sampled) < set(whole)
    assert 0.2 < size(sampled) / size(whole) < 0.45


def test_the_sample_is_full_though_most_of_the_files_is_not_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: list[str]
) -> None:
    cut_small(monkeypatch, 200_000)
    texts = read_documents(write_corpus(tmp_path / "a.txt", 0.1))
    records = [json.dumps({"text": text, "html": "<b>" * 3 * len(text)}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(records))
    num_bytes = MEGABYTES * 1e6
    prepare_quietly([tmp_path / "a.jsonl"], tmp_path / "out", configure())
    assert 0.9 * num_bytes < size(sampled) <= num_bytes


def test_a_stream_of_unknown_size_is_sampled_from_beginning_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: list[str]
) -> None:
    monkeypatch.setattr(blocks, "estimate_bytes", lambda source: 0)
    path = write_corpus(tmp_path / "a.txt", 0.2)
    make_work(tmp_path / "out", [path], configure(), VOCABULARY, sample_share=1e9)
    assert 0.9 * MEGABYTES * 1e6 < size(sampled) <= MEGABYTES * 1e6
    documents = read_documents(path)
    assert documents.index(sampled[-1]) > 0.8 * len(documents)


def test_another_seed_draws_another_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: list[str]
) -> None:
    cut_small(monkeypatch, 50_000)
    path, found = write_corpus(tmp_path / "a.txt", 0.2), list[list[str]]()
    for seed in (0, 1):
        prepare_quietly([path], tmp_path / str(seed), configure(), seed)
        found.append([*sampled])
    assert found[0] != found[1]


def test_the_sample_has_neither_what_is_dropped_nor_what_is_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: list[str]
) -> None:
    cut_small(monkeypatch, 5_000)
    texts = read_documents(write_corpus(tmp_path / "a.txt"))
    held_out = write_lines(tmp_path / "valid.jsonl", texts[:9])
    path = write_lines(tmp_path / "a.jsonl", [*texts[5:], *texts[20:40]])
    corpus = CorpusConfig(valid_text=(str(held_out),))
    config = replace(configure(1.0), corpus=corpus)
    make_work(tmp_path / "out", [path], config, VOCABULARY)
    assert sampled == texts[9:]


def test_what_the_hash_holds_out_is_not_in_the_sample(tmp_path: Path, sampled: list[str]) -> None:
    path = write_corpus(tmp_path / "a.txt", 0.1)
    config = replace(configure(1.0), corpus=CorpusConfig(valid_fraction=0.2))
    work = make_work(tmp_path / "out", [path], config, VOCABULARY)
    splits = Splits(**work.facts(VOCABULARY)["splits"])
    texts = read_documents(path)
    parts = [splits.divide(text) for text in texts]
    assert sampled == [part for each in parts for split, part in each if split == "train"]
    assert len(sampled) < len(texts)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_end_of_a_document_that_is_held_out_is_not_in_the_sample(
    tmp_path: Path, sampled: list[str], share: float
) -> None:
    lines = [f"line {number} of a book" for number in range(900)]
    (tmp_path / "book.txt").write_text("\n".join(lines))
    config = replace(configure(1.0), corpus=CorpusConfig(documents="file"))
    make_work(tmp_path / "out", [tmp_path / "book.txt"], config, VOCABULARY, sample_share=share)
    found = [line for text in sampled for line in text.split("\n")]
    assert found == lines[: len(found)]
    assert 0.85 * len(lines) < len(found) < 0.95 * len(lines)


def test_a_tokenizer_from_elsewhere_is_taken_as_it_is(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    prepare_quietly([path], tmp_path / "first", small_config())
    base = str(tmp_path / "first" / TOKENIZER_NAME)
    config = replace(small_config(), tokenizer=TokenizerConfig(path=base))
    work = make_work(tmp_path / "out", [path], config, VOCABULARY)
    assert work.facts(VOCABULARY)["extension"] == {}
    found = Tokenizer.load(work.folder / TOKENIZER_NAME)
    assert found.fingerprint == Tokenizer.load(base).fingerprint


def test_an_extension_is_measured_on_text_that_it_was_not_learned_from(tmp_path: Path) -> None:
    path, other = write_corpus(tmp_path / "a.txt"), write_corpus(tmp_path / "b.txt", 0.1, seed=1)
    prepare_quietly([path], tmp_path / "first", small_config())
    base = str(tmp_path / "first" / TOKENIZER_NAME)
    tokenizer = TokenizerConfig(path=base, extend_vocab=64)
    corpus = CorpusConfig(valid_fraction=0.2)
    config = replace(small_config(), tokenizer=tokenizer, corpus=corpus)
    manifest, lines = prepare_quietly([other], tmp_path / "out", config)
    found = manifest.source["tokenizer_extension"]
    assert found["base"] == base
    assert (found["base_vocab_size"], found["vocab_size"]) == (256, 320)
    assert manifest.vocab_size == 320
    assert found["held_out_words"] > 0.8 * manifest.splits["valid"].num_words
    assert found["fertility"] < found["fertility_before"]
    assert sum("tokens per word of held-out text" in line for line in lines) == 1


def test_a_task_that_is_done_twice_makes_the_same(tmp_path: Path) -> None:
    work = make_work(tmp_path / "out", [write_corpus(tmp_path / "a.txt")], configure(), EXACT)
    (work.folder / VOCABULARY).mkdir()
    found = list[str]()
    for _ in range(2):
        make_vocabulary(work, VOCABULARY, 0)
        found.append(Tokenizer.load(work.folder / TOKENIZER_NAME).fingerprint)
    assert found[0] == found[1]


LINES = "blank_line"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 2_000)


def find_duplicates(path: Path, corpus: CorpusConfig) -> Work:
    """The work on `path`, after the search for exact duplicates."""
    config = replace(small_config(), corpus=corpus)
    until = EXACT if corpus.deduplicate or corpus.valid_text else READ
    return make_work(path.with_suffix(".out"), [path], config, until)


def split_texts(path: Path, corpus: CorpusConfig) -> dict[str, list[str]]:
    work = find_duplicates(path, corpus)
    splits, found = settle_splits(work), dict[str, list[str]](train=[], valid=[])
    for block in range(len(work.plan.blocks)):
        dropped = work.read_drops(block)
        for index, text in enumerate(work.read_texts(block)):
            if index not in dropped and work.is_held_out(block):
                found["valid"].append(text)
            elif index not in dropped:
                for split, part in splits.divide(text):
                    found[split].append(part)
    return found


def test_many_documents_are_split_by_hash(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt", 0.1)
    documents = read_documents(path)
    found = split_texts(path, CorpusConfig(valid_fraction=0.1))
    expected = [text for text in documents if is_validation(fingerprint_text(text), 0.1)]
    assert found["valid"] == expected != []
    assert found["train"] == [text for text in documents if text not in expected]


def test_named_files_are_held_out_and_nothing_else(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.txt"
    path.write_text("".join(f"sentence {number}\n" for number in range(500)))
    held_out.write_text("sentence 7\nanother one\n\nanother one\n")
    config = CorpusConfig(documents="line", valid_fraction=0.5, valid_text=(str(held_out),))
    found = split_texts(path, config)
    assert found["valid"] == ["sentence 7", "another one"]
    assert len(found["train"]) == 499
    assert "sentence 7" not in found["train"]


def test_named_files_are_held_out_where_copies_stay(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.txt"
    path.write_text("one\ntwo\none\nthree\ntwo\n")
    held_out.write_text("two\ntwo\n")
    config = CorpusConfig(documents="line", valid_text=(str(held_out),), deduplicate=False)
    assert split_texts(path, config) == {"train": ["one", "one", "three"], "valid": ["two", "two"]}


def test_a_file_to_hold_out_must_hold_text(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.jsonl"
    path.write_text("a sentence")
    held_out.write_text('{"text": " "}\nno JSON\n')
    with pytest.raises(CorpusError, match=r"valid\.jsonl: nothing is left to validate") as caught:
        split_texts(path, CorpusConfig(valid_text=(str(held_out),)))
    assert "bad JSON line (first valid.jsonl:2): 1" in str(caught.value)


def test_text_that_is_all_held_out_is_none_to_train_on(tmp_path: Path) -> None:
    path, held_out = tmp_path / "train.txt", tmp_path / "valid.txt"
    for each in (path, held_out):
        each.write_text("one\n\ntwo")
    with pytest.raises(CorpusError, match=r"train\.txt: nothing is left to train on"):
        split_texts(path, CorpusConfig(valid_text=(str(held_out),)))


def test_a_single_document_gives_its_end(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    lines = [f"line {number} of the book" for number in range(1000)]
    path.write_text("\n".join(lines))
    found = split_texts(path, CorpusConfig(documents="file", valid_fraction=0.01))
    assert [len(texts) for texts in found.values()] == [1, 1]
    train, valid = found["train"][0].split("\n"), found["valid"][0].split("\n")
    assert train + valid == lines
    assert 0.009 < len(valid) / len(lines) < 0.012


def test_of_a_few_documents_the_longest_gives_its_end(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    documents = ["short one", "a much longer one of many words " * 20, "another short one"]
    path.write_text("\n\n".join(documents))
    found = split_texts(path, CorpusConfig(documents=LINES))
    assert len(found["train"]) == 3
    assert len(found["valid"]) == 1
    assert documents[1].strip().endswith(found["valid"][0])
    together = " ".join([*found["train"], *found["valid"]]).split()
    assert sorted(together) == sorted(" ".join(documents).split())


def test_next_to_nothing_held_out_is_made_up_for(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    words = write_corpus(tmp_path / "a.txt", 0.03).read_text().replace("\n\n", "\n")
    # Of these short documents the hash holds some out.
    documents = [words[:20_000].strip(), *(f"short {number}" for number in range(200))]
    path.write_text("\n\n".join(documents))
    found = split_texts(path, CorpusConfig(documents=LINES, valid_fraction=0.02))
    short = [text for text in found["valid"] if text.startswith("short ")]
    assert 0 < len(short) == len(found["valid"]) - 1
    total = sum(len(text) for texts in found.values() for text in texts)
    assert 0.01 < sum(map(len, found["valid"])) / total < 0.03
    [tail] = [text for text in found["valid"] if text not in short]
    assert documents[0].endswith(tail)


def find_by_split(split: Split, characters: int) -> str:
    """A document of about this length that the hash puts into a split."""
    line = "word after word after word\n" * (characters // 27)
    texts = (f"{line}number {number}" for number in range(1_000))
    return next(t for t in texts if is_validation(fingerprint_text(t), 0.1) == (split == "valid"))


@pytest.mark.parametrize("others", [0, 1, 8])
def test_the_hash_does_not_hold_out_nearly_all(tmp_path: Path, others: int) -> None:
    book = find_by_split("valid", 60_000)
    prefaces = [f"{find_by_split('train', 500)} {number}" for number in range(others)]
    (tmp_path / "texts").mkdir()
    for number, text in enumerate([book, *prefaces]):
        (tmp_path / "texts" / f"{number}.md").write_text(text)
    found = split_texts(tmp_path / "texts", CorpusConfig(documents="file"))
    assert 0.05 < len("".join(found["valid"])) / len("".join([book, *prefaces])) < 0.2
    assert book.startswith(found["train"][0])


def test_a_copy_of_what_is_cut_is_cut(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / "texts" / f"{name}.md").write_text(find_by_split("train", 20_000))
    corpus = CorpusConfig(documents="file", deduplicate=False)
    found = split_texts(tmp_path / "texts", corpus)
    assert (len(found["train"]), len(found["valid"])) == (2, 2)
    assert not any(tail in head for tail in found["valid"] for head in found["train"])


def test_text_that_is_all_held_out_by_name_says_so(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    with pytest.raises(CorpusError, match=r"duplicate of held-out text: \d+"):
        split_texts(path, CorpusConfig(valid_text=(str(path),)))


def test_what_the_hash_holds_out_is_enough_when_it_is_half_of_the_share(tmp_path: Path) -> None:
    path = tmp_path / "even.txt"
    path.write_text("\n\n".join(f"document number {number}" for number in range(300)))
    found = split_texts(path, CorpusConfig(documents=LINES, valid_fraction=0.1))
    assert all(text.startswith("document number") for texts in found.values() for text in texts)
    assert sum(map(len, found.values())) == 300


def test_nothing_is_held_out_on_request(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("one\n\ntwo words\n\nthree")
    found = split_texts(path, CorpusConfig(documents=LINES, valid_fraction=0.0))
    assert sorted(found["train"]) == ["one", "three", "two words"]
    assert found["valid"] == []


def test_too_little_to_hold_any_out(tmp_path: Path) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text("x")
    with pytest.raises(CorpusError, match=r"tiny\.txt: 1 characters are too few"):
        split_texts(path, CorpusConfig())


@given(st.text(min_size=2), st.integers(0, 50))
def test_cutting_loses_only_whitespace(text: str, size: int) -> None:
    head, tail = cut_tail(text, size)
    assert "".join((head + tail).split()) == "".join(text.split())
    assert len(tail) <= min(max(2 * size, 200), (len(text) + 1) // 2)


def test_the_share_is_chosen_by_the_size_of_the_text_unless_it_is_given(tmp_path: Path) -> None:
    small = write_corpus(tmp_path / "small.txt", 0.2)
    assert settle_splits(find_duplicates(small, CorpusConfig())).valid_fraction == 0.1
    large = tmp_path / "large.txt"
    large.write_text("\n".join(f"{number} words of a line" * 20 for number in range(10_000)))
    found = settle_splits(find_duplicates(large, CorpusConfig(documents="line")))
    assert found.valid_fraction == round(80_000 / (large.stat().st_size - 9_999), 4)


def test_a_share_that_is_given_is_taken(tmp_path: Path) -> None:
    small = write_corpus(tmp_path / "small.txt", 0.2)
    corpus = CorpusConfig(valid_fraction=0.02)
    assert settle_splits(find_duplicates(small, corpus)) == Splits(0.02)


FILES = CorpusConfig(documents="file")
SCRIPTS = {"korean": (0xAC00, 0xD7A3, 3), "hindi": (0x0905, 0x0939, 5), "english": (97, 122, 5)}


def write_documents(
    folder: Path, script: str, num_documents: int, seed: int, megabytes: float = 2.0
) -> list[str]:
    """Files of invented words, some many times as long as others; returns their texts."""
    draw = random.Random(seed)
    first, last, length = SCRIPTS[script]
    letters = range(first, last + 1)
    words = ["".join(map(chr, draw.choices(letters, k=length))) for _ in range(2_000)]
    shares = [draw.lognormvariate(0, 1) for _ in range(num_documents)]
    num_words = megabytes * 1e6 / len(f"{words[0]} ".encode())
    folder.mkdir()
    for number, share in enumerate(shares):
        chosen = draw.choices(words, k=round(num_words * share / sum(shares)) + 1)
        lines = [" ".join(chosen[n : n + 20]) for n in range(0, len(chosen), 20)]
        (folder / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    return [path.read_text(encoding="utf-8") for path in folder.iterdir()]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("num_documents", "seed"), [(400, 0), (400, 1), (60, 0), (60, 1), (9, 0)])
def test_enough_is_held_out_of_any_script_and_of_few_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, num_documents: int, seed: int
) -> None:
    cut_small(monkeypatch, 1_000_000)
    texts, corpus = write_documents(tmp_path / "a", script, num_documents, seed), FILES
    found = split_texts(tmp_path / "a", corpus)["valid"]
    enough = min(20_000, sum(map(estimate_tokens, texts)) / 10)
    assert 0.5 < sum(map(estimate_tokens, found)) / enough < 3
    cut_small(monkeypatch, 300_000)
    (tmp_path / "b").mkdir()
    for number, text in enumerate(reversed(texts)):
        (tmp_path / "b" / f"{number}.txt").write_text(text, encoding="utf-8")
    again = split_texts(tmp_path / "b", corpus)["valid"]
    assert sorted(again) == sorted(found)  # in another order, in other blocks


def test_the_tokens_held_out_are_those_aimed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 1_000_000)
    write_documents(tmp_path / "texts", "korean", 60, 1)
    tokenizer = TokenizerConfig(vocab_size=4096, sample_megabytes=1.0)
    config = replace(small_config(), corpus=FILES, tokenizer=tokenizer)
    manifest, _ = prepare_quietly([tmp_path / "texts"], tmp_path / "out", config)
    assert 10_000 < manifest.splits["valid"].num_tokens < 40_000


def test_what_the_hash_holds_out_stays_where_it_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 1_000_000)
    texts = write_documents(tmp_path / "texts", "english", 400, 1, 4.0)
    share = choose_valid_fraction(len(text) for text in texts)
    found = split_texts(tmp_path / "texts", FILES)
    expected = [text for text in texts if is_validation(fingerprint_text(text), share)]
    assert sorted(found["valid"]) == sorted(expected)
    assert sum(map(len, expected)) > 40_000
