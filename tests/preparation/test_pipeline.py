"""Text to a prepared folder: what is in it, and that nothing that happens meanwhile changes it."""

import io
import re
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError, CorpusError, ShardError, TokenizerError
from maskwright.preparation.folder import making_folder
from maskwright.preparation.pipeline import describe_progress, prepare_folder
from maskwright.preparation.tasks import BlockReader
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import Manifest, read_manifest
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.preparation.helpers import (
    cut_small,
    interrupt_at,
    prepare_quietly,
    read_documents,
    read_folder,
    read_shards,
    run_prepare,
    small_config,
    write_corpus,
    write_lines,
)

KINDS = ("tokens", "ends", "starts")


def test_text_comes_back_from_the_shards(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    config = replace(small_config(), corpus=CorpusConfig(valid_fraction=0.1))
    manifest, lines = prepare_quietly([path], out, config)
    assert read_manifest(out) == manifest
    assert "tokenizer: 256 tokens" in " ".join(lines)
    assert manifest.source["valid_fraction"] == 0.1
    tokenizer = Tokenizer.load(out / "tokenizer")
    assert manifest.tokenizer_fingerprint == tokenizer.fingerprint
    documents = [*read_shards(out, "train"), *read_shards(out, "valid")]
    assert sorted(documents) == sorted(read_documents(path))
    for split in ("train", "valid"):
        store, info = TokenStore.open(out, split), manifest.splits[split]
        assert store.num_documents == info.num_documents > 0
        assert store.num_tokens == info.num_tokens
        words = int(store.word_starts(0, store.num_tokens).sum())
        assert info.num_words <= words <= info.num_words + info.num_documents  # full stops
    total = sum(info.num_characters for info in manifest.splits.values())
    assert total == sum(map(len, documents))


def test_each_stage_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 2_500)
    config = replace(small_config(), select=SelectionConfig(near_duplicates=0.8))
    _, lines = prepare_quietly([write_corpus(tmp_path / "a.txt")], tmp_path / "out", config)
    for stage in ("read", "exact duplicates", "near duplicates", "round 1", "encoded"):
        counted = [re.search(r"\((\d+)%, [\d:]+ left\)$", line) for line in lines if stage in line]
        shares = [int(found[1]) for found in counted if found]
        assert shares == sorted(shares)
        assert shares[-1] == 100, stage


def test_unigram_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 10_000)
    prepare_quietly([write_corpus(tmp_path / "a.txt")], tmp_path / "out", small_config())
    store = TokenStore.open(tmp_path / "out", "train")
    ids = [store.tokens(s, s + 1)[0] for s in range(store.num_tokens)]
    assert store.unigram_counts.tolist() == np.bincount(ids, minlength=256).tolist()


def test_nothing_but_the_result_is_left(tmp_path: Path) -> None:
    prepare_quietly([write_corpus(tmp_path / "a.txt")], tmp_path / "out", small_config())
    shards = [f"{split}/00000.{kind}" for split in ("train", "valid") for kind in KINDS]
    tokenizer = ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
    expected = sorted(["manifest.json", "unigram.counts", *shards, *tokenizer])
    assert sorted(read_folder(tmp_path / "out")) == expected
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_the_same_is_not_prepared_twice(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    first, _ = prepare_quietly([path], out, small_config())
    before = (out / "train" / "00000.tokens").stat().st_mtime_ns
    copy = tmp_path / "copy.txt"
    copy.write_bytes(path.read_bytes())
    again, lines = prepare_quietly([copy], out, small_config(workers=2))
    assert again == first
    assert "reused" in lines[0]
    assert (out / "train" / "00000.tokens").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "damaged", ["train/00000.tokens", "valid/00000.ends", "unigram.counts", "tokenizer"]
)
def test_damaged_data_is_prepared_again(damaged: str, tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    prepare_quietly([path], out, small_config())
    before = read_folder(out)
    file = out / damaged if damaged != "tokenizer" else out / "tokenizer" / "tokenizer.json"
    file.write_bytes(file.read_bytes().replace(b"to", b"tu")[:-2] + b"}\n")
    _, lines = prepare_quietly([path], out, small_config())
    assert "again, because it is damaged" in lines[0]
    assert damaged in lines[0]
    assert read_folder(out) == before
    assert "reused" in prepare_quietly([path], out, small_config())[1][0]


def test_a_folder_with_other_data_is_left_alone(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    prepare_quietly([path], out, small_config())
    before = read_folder(out)
    other = write_corpus(tmp_path / "b.txt", seed=1)
    changed = Path(write_corpus(tmp_path / "c.txt", seed=1)).replace(path)
    for paths, config, difference in (
        ([other], small_config(), rf"paths was \['{path}'\] and is \['{other}'\]\. Choose"),
        ([path], small_config(block_megabytes=2), r"block_megabytes was \d+ and is 2\. Choose"),
        ([changed], small_config(), r"configuration: the content of the files differs\. Choose"),
    ):
        with pytest.raises(ShardError, match=f"out was prepared from other text .*{difference}"):
            prepare_quietly(paths, out, config)
    assert read_folder(out) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("do not touch")
    for used in (tmp_path / "full", path):
        with pytest.raises(ShardError, match=r"not a folder|not prepared data"):
            prepare_quietly([path], used, small_config())
    assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["thesis.doc"]


def test_two_processes_prepare_one_folder_one_after_the_other(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    lines: list[str] = []
    is_told = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        is_told.set()

    def prepare_too() -> None:
        prepare_folder([str(path)], out, small_config(), report=report)

    second = threading.Thread(target=prepare_too, daemon=True)
    with making_folder(out, lambda line: None):
        second.start()
        assert is_told.wait(60)
        assert "out is being prepared by another process" in lines[0]
        assert list(out.iterdir()) == []
    second.join(timeout=60)
    assert read_manifest(out).splits["train"].num_tokens > 0


@pytest.mark.parametrize(
    ("stop", "code", "stage"),
    [
        (signal.SIGKILL, -signal.SIGKILL, "read"),
        (signal.SIGINT, 128 + signal.SIGINT, "encode"),
    ],
)
def test_an_interrupted_preparation_continues(
    stop: signal.Signals, code: int, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write_corpus(tmp_path / "a.txt", 0.2), tmp_path / "out"
    command = [str(path), "--out", str(out), "--workers", "2"]
    command += ["--tokenizer.vocab_size", "256", "--block_megabytes", "1"]
    returned, said = run_prepare(command, 20_000, f"{stage}:6:{int(stop)}:coordinator")
    assert returned == code, said
    assert not (out / "manifest.json").exists()
    finished = list(out.glob(f".work-*/{stage}/*.json"))
    assert len(finished) >= 5
    cut_small(monkeypatch, 20_000)
    _, lines = prepare_quietly([path], out, small_config())
    if stage == "encode":
        assert not any("training" in line for line in lines)  # the tokenizer is kept
    verb = "encoded" if stage == "encode" else "read"
    [kept] = [line.split() for line in lines if line.startswith(verb) and line.endswith("before")]
    assert int(kept[1]) == len(finished)
    prepare_quietly([path], tmp_path / "whole", small_config())
    assert read_folder(out) == read_folder(tmp_path / "whole")


def test_a_task_that_is_done_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 10_000)
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    whole, _ = prepare_quietly([path], tmp_path / "whole", small_config())
    begun = interrupt_at(monkeypatch, BlockReader, 3)
    with pytest.raises(KeyboardInterrupt):
        prepare_quietly([path], out, small_config())
    assert begun == [0, 1, 2]
    again, _ = prepare_quietly([path], out, small_config())
    assert begun[3:] == list(range(2, len(begun) - 1))
    assert again == whole


def test_after_a_failure_another_configuration_may_be_tried(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    first = tmp_path / "first"
    prepare_quietly([path], first, small_config())
    extended = TokenizerConfig(path=str(first / "tokenizer"), extend_vocab=100_000)
    with pytest.raises(TokenizerError, match="the text supports only") as error:
        prepare_quietly([path], out, replace(small_config(), tokenizer=extended))
    assert "\n" not in str(error.value)
    prepare_quietly([path], out, small_config())
    assert read_folder(out) == read_folder(first)


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_corpus(tmp_path / "a.txt")

    def prepare_piped(content: bytes) -> tuple[Manifest, list[str]]:
        pipe(monkeypatch, content)
        return prepare_quietly(["-"], tmp_path / "piped", small_config())

    manifest, _ = prepare_piped(path.read_bytes())
    assert "reused" in prepare_piped(path.read_bytes())[1][0]
    named, _ = prepare_quietly([path], tmp_path / "named", small_config())
    assert manifest.splits == named.splits
    assert manifest.source["paths"] == ["-"]
    with pytest.raises(ShardError, match="was prepared from other text"):
        prepare_piped(b"Something else.")
    assert not list((tmp_path / "piped").rglob("*stdin*"))


def test_what_was_dropped_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 10_000)
    path = tmp_path / "a.jsonl"
    texts = read_documents(write_corpus(tmp_path / "a.txt"))
    write_lines(path, [*texts, texts[0]])
    lines = path.read_text().splitlines()
    broken = ["{broken", *lines, '{"text": ""}', "[also broken"]
    path.write_text("\n".join([*lines[:1], *broken[:1], *lines[1:], *broken[-2:]]) + "\n")
    manifest, reported = prepare_quietly([path], tmp_path / "out", small_config())
    assert len(manifest.splits["train"].shards) > 3
    assert manifest.dropped == {
        "duplicate": 1, "empty": 1, "bad JSON line (first a.jsonl:2)": 2
    }  # fmt: skip
    train = manifest.splits["train"]
    assert f"{train.num_documents:,} documents, {train.num_tokens:,} tokens" in reported[-1]
    assert "1 duplicate" in reported[-1]


def test_little_held_out_text_is_warned_about(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    manifest, lines = prepare_quietly([path], tmp_path / "out", small_config())
    assert f"only {manifest.splits['valid'].num_tokens:,} validation tokens" in lines[-1]
    config = replace(small_config(), corpus=CorpusConfig(valid_fraction=0.0))
    _, lines = prepare_quietly([path], tmp_path / "all", config)
    assert "no text is held out" in lines[-1]


def test_many_unknown_words_are_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    words = [chr(0xAC00 + n) + chr(0xAC00 + 7 * n) for n in range(1_500)]
    path.write_text("\n\n".join(f"{w} the snail" for w in words), encoding="utf-8")
    _, lines = prepare_quietly([path], tmp_path / "out", small_config())
    assert re.search(r"^\d\d\.\d% of the characters are lost .* alphabet", lines[-1], re.MULTILINE)
    path = write_corpus(tmp_path / "b.txt")
    assert "lost" not in " ".join(prepare_quietly([path], tmp_path / "b", small_config())[1])


def test_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match=r"a\.txt"):
        prepare_quietly([tmp_path / "a.txt"], tmp_path / "out", small_config())


def test_messages_name_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = write_corpus(tmp_path / "held-out.txt")
    config = replace(small_config(), corpus=CorpusConfig(valid_text=(str(held_out),)))
    pipe(monkeypatch, held_out.read_bytes())
    with pytest.raises(CorpusError) as caught:
        prepare_quietly(["-"], tmp_path / "out", config)
    assert str(caught.value).startswith("-: nothing is left to train on")


def test_nothing_is_kept(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "a.txt")
    num_documents = len(read_documents(corpus))
    config = replace(small_config(), select=SelectionConfig(language="ko"))
    with pytest.raises(CorpusError, match=rf"another language: {num_documents}\b"):
        prepare_quietly([corpus], tmp_path / "out", config)
    (tmp_path / "short.txt").write_text("Too short.\n")
    select = SelectionConfig(decontaminate=(str(tmp_path / "short.txt"),))
    with pytest.raises(CorpusError, match=r"short\.txt: no text has 8 words"):
        prepare_quietly([corpus], tmp_path / "none", replace(small_config(), select=select))


def test_steps_that_cannot_be_taken_are_known_before_the_text_is_read(tmp_path: Path) -> None:
    config = replace(small_config(), select=SelectionConfig(language="xq"))
    with pytest.raises(ConfigError, match=r"select\.language = xq"):
        prepare_quietly([write_corpus(tmp_path / "a.txt")], tmp_path / "out", config)
    assert not (tmp_path / "out").exists()


def test_progress_of_what_is_unfinished_and_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 10_000)
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    with pytest.raises(ShardError, match="out holds no preparation"):
        describe_progress(out)
    interrupt_at(monkeypatch, BlockReader, 3)
    with pytest.raises(KeyboardInterrupt):
        prepare_quietly([path], out, small_config())
    with making_folder(out, print):
        assert describe_progress(out)[-1] == "A process is running."
    lines = describe_progress(out)
    assert re.fullmatch(r"read: 2 of \d+ blocks", lines[0])
    assert re.fullmatch(r"encode: 0 of \d+ blocks", lines[-3])
    assert "run the same prepare command again" in lines[-1]
    prepare_quietly([path], out, small_config())
    (out / ".work-of-slurm").mkdir()
    with making_folder(out, print):
        assert describe_progress(out)[0] == f"{out}: finished"
    assert (out / ".work-of-slurm").exists()  # a process may need it
    assert describe_progress(out)[0] == f"{out}: finished"
    assert not (out / ".work-of-slurm").exists()
