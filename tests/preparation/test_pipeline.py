import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from maskwright import progress
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import CorpusError, ShardError, TokenizerError
from maskwright.preparation import pipeline
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.input_identity import fingerprint_input
from maskwright.preparation.pipeline import prepare
from maskwright.shards.manifest import Manifest, read_manifest
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.preparation.helpers import read_folder, small_config, write_corpus

KINDS = ("tokens", "ends", "starts")


def prepare_quietly(
    paths: Sequence[Path | str], out: Path, config: PrepareConfig
) -> tuple[Manifest, list[str]]:
    lines: list[str] = []
    manifest = prepare([str(path) for path in paths], out, config, report=lines.append)
    return manifest, lines


def test_text_comes_back_from_the_shards(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    config = replace(small_config(), corpus=CorpusConfig(valid_fraction=0.1))
    manifest, lines = prepare_quietly([path], out, config)
    assert read_manifest(out) == manifest
    assert "tokenizer: 256 tokens" in " ".join(lines)
    assert "(100%, 0:00:00 left)" in " ".join(lines)
    assert manifest.source["valid_fraction"] == 0.1
    assert "so little text is held out" in lines[-1]
    tokenizer = Tokenizer.load(out / "tokenizer")
    assert manifest.tokenizer_fingerprint == tokenizer.fingerprint
    documents: list[str] = []
    for split in ("train", "valid"):
        store, info = TokenStore.open(out, split), manifest.splits[split]
        assert store.num_documents == info.num_documents > 0
        start, words = 0, 0
        for length in store.document_lengths.tolist():
            documents.append(tokenizer.decode(store.tokens(start, start + length)))
            words += int(store.word_starts(start, start + length).sum())
            start += length
        assert start == store.num_tokens == info.num_tokens
        assert info.num_words <= words <= info.num_words + info.num_documents  # full stops
    assert sorted(documents) == sorted(path.read_text().strip().split("\n\n"))
    total = sum(info.num_characters for info in manifest.splits.values())
    assert total == sum(map(len, documents))


def test_reading_for_the_tokenizer_is_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0)
    path = write_corpus(tmp_path / "a.txt", 1.0)
    _, lines = prepare_quietly([path], tmp_path / "out", small_config())
    read = [line for line in lines if "1 million characters read for the tokenizer" in line]
    assert read
    assert all(re.search(r"\(\d+%, \d+:\d\d:\d\d left\)$", line) for line in read)


def test_a_vocabulary_that_the_text_does_not_give_is_smaller(tmp_path: Path) -> None:
    config = replace(small_config(), tokenizer=TokenizerConfig(vocab_size=8192))
    manifest, lines = prepare_quietly([write_corpus(tmp_path / "a.txt")], tmp_path / "out", config)
    assert manifest.vocab_size < 8192
    said = f"vocab_size = 8,192: it gives {manifest.vocab_size:,} tokens, and these are used"
    assert sum(line.endswith(said) for line in lines) == 1


def test_unigram_counts(tmp_path: Path) -> None:
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


def test_the_number_of_workers_changes_no_byte(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt", 3.5)
    for workers in (1, 2):
        config = small_config(workers=workers)
        manifest, _ = prepare_quietly([path], tmp_path / str(workers), config)
        assert len(manifest.splits["train"].shards) == 4
    assert read_folder(tmp_path / "1") == read_folder(tmp_path / "2")


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
    assert "again, because it was damaged" in lines[0]
    assert damaged in lines[0]
    assert read_folder(out) == before
    assert "reused" in prepare_quietly([path], out, small_config())[1][0]


def test_a_known_fingerprint_is_not_worked_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    known = fingerprint_input([str(path)], small_config(), 0)
    monkeypatch.delattr(pipeline, "fingerprint_input")
    manifest = prepare([str(path)], out, small_config(), fingerprint=known)
    assert manifest.fingerprint == known


def test_a_folder_with_other_data_is_left_alone(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    prepare_quietly([path], out, small_config())
    before = read_folder(out)
    other = write_corpus(tmp_path / "b.txt", seed=1)
    changed = Path(write_corpus(tmp_path / "c.txt", seed=1)).replace(path)
    for paths, config, difference in (
        ([other], small_config(), rf"paths was \['{path}'\] and is \['{other}'\]\. Choose"),
        ([path], small_config(shard_megabytes=2), r"shard_megabytes was \d+ and is 2\. Choose"),
        ([changed], small_config(), r"configuration: what is in the files\. Choose"),
    ):
        with pytest.raises(ShardError, match=f"out was prepared from other text .*{difference}"):
            prepare_quietly(paths, out, config)
    assert read_folder(out) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("do not touch")
    for used in (tmp_path / "full", path):
        with pytest.raises(ShardError, match="in use for something else"):
            prepare_quietly([path], used, small_config())


START = """
import os
import signal
import sys
from pathlib import Path
from maskwright.preparation.pipeline import prepare
from tests.preparation.helpers import small_config


def stop(line):
    if line.startswith("encoded"):  # the first shard is written, the others are on their way
        os.kill(os.getpid(), int(sys.argv[4]))


if __name__ == "__main__":
    # a shell that starts the tests in the background has SIGINT ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    workers = int(sys.argv[3])
    prepare([sys.argv[1]], Path(sys.argv[2]), small_config(workers=workers), report=stop)
"""


@pytest.mark.parametrize(
    ("workers", "stop"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (2, signal.SIGINT)]
)
def test_an_interrupted_preparation_continues(
    workers: int, stop: signal.Signals, tmp_path: Path
) -> None:
    path = write_corpus(tmp_path / "a.txt", 6.5)
    script = tmp_path / "start.py"
    script.write_text(START)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(script), str(path), str(tmp_path / "out")]
    command += [str(workers), str(int(stop))]
    stopped = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert stopped.returncode != 0
    assert not (tmp_path / "out" / "manifest.json").exists()
    finished = list((tmp_path / "out").glob("train/*.done"))
    assert finished
    _, lines = prepare_quietly([path], tmp_path / "out", small_config())
    assert not any("training" in line for line in lines)  # the tokenizer is kept
    kept = int(lines[-2].split("MB/s, ")[1].split()[0])
    assert kept >= len(finished)
    prepare_quietly([path], tmp_path / "whole", small_config())
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "whole")


def test_after_a_failure_another_configuration_may_be_tried(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    first = tmp_path / "first"
    prepare_quietly([path], first, small_config())
    extended = TokenizerConfig(path=str(first / "tokenizer"), extend_vocab=100_000)
    with pytest.raises(TokenizerError, match="more than the text supports") as error:
        prepare_quietly([path], out, replace(small_config(), tokenizer=extended))
    assert "\n" not in str(error.value)
    prepare_quietly([path], out, small_config())
    prepare_quietly([path], tmp_path / "fresh", small_config())
    assert read_folder(out) == read_folder(tmp_path / "fresh")


def test_an_existing_tokenizer(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    first, _ = prepare_quietly([path], tmp_path / "first", small_config())
    folder = str(tmp_path / "first" / "tokenizer")
    config = replace(small_config(), tokenizer=TokenizerConfig(path=folder))
    second, lines = prepare_quietly([path], tmp_path / "second", config)
    assert second.tokenizer_fingerprint == first.tokenizer_fingerprint
    assert second.splits == first.splits
    assert not any("training" in line for line in lines)
    shares = [int(line.split("(")[1].split("%")[0]) for line in lines if "encoded" in line]
    assert shares == sorted(shares)
    assert shares[-1] == 100


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_corpus(tmp_path / "a.txt")

    def prepare_piped() -> tuple[Manifest, list[str]]:
        stdin = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
        monkeypatch.setattr(sys, "stdin", stdin)
        return prepare_quietly(["-"], tmp_path / "piped", small_config())

    manifest, _ = prepare_piped()
    assert "reused" in prepare_piped()[1][0]
    named, _ = prepare_quietly([path], tmp_path / "named", small_config())
    assert manifest.splits == named.splits
    assert manifest.source["paths"] == ["-"]
    assert not (tmp_path / "piped" / "stdin.txt").exists()


def test_what_was_dropped_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    corpus = write_corpus(tmp_path / "a.txt").read_text().split("\n\n")
    lines = [f'{{"text": "{text.strip()}"}}' for text in corpus if text.strip()]
    path.write_text("\n".join([*lines, lines[0], "{broken", '{"text": ""}']))
    manifest, reported = prepare_quietly([path], tmp_path / "out", small_config())
    assert manifest.dropped["duplicate"] == 1
    assert sum(manifest.dropped.values()) == 3
    train = manifest.splits["train"]
    assert f"{train.num_documents:,} documents, {train.num_tokens:,} tokens" in reported[-1]
    assert f"1 bad JSON line (first a.jsonl:{len(lines) + 2})" in reported[-1]
    assert "1 duplicate" in reported[-1]


def test_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match=r"a\.txt"):
        prepare_quietly([tmp_path / "a.txt"], tmp_path / "out", small_config())


def test_one_long_document_becomes_both_splits(tmp_path: Path) -> None:
    words = write_corpus(tmp_path / "a.txt").read_text().replace("\n\n", "\n")
    (tmp_path / "book.txt").write_text(words)
    config = replace(small_config(), corpus=CorpusConfig(documents="file"))
    manifest, _ = prepare_quietly([tmp_path / "book.txt"], tmp_path / "out", config)
    train, valid = manifest.splits["train"], manifest.splits["valid"]
    assert (train.num_documents, valid.num_documents) == (1, 1)
    assert 0.08 < valid.num_tokens / train.num_tokens < 0.14  # a tenth of a small text
