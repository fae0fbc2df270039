"""What is held out, and the tokenizer: what it is trained on, and what is known of an extension."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.corpus import blocks
from maskwright.corpus.config import CorpusConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.work import VOCABULARY
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


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 2_000)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the tokenizer is trained on."""
    found = list[str]()

    def train(texts: Iterable[str], config: TokenizerConfig, seed: int) -> Tokenizer:
        found[:] = texts
        return train_tokenizer(found, config, seed)

    monkeypatch.setattr("maskwright.preparation.tasks.train_tokenizer", train)
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
