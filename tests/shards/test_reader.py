import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskwright.errors import ShardError
from maskwright.shards.manifest import COUNTS_NAME, Manifest, SplitInfo, write_manifest
from maskwright.shards.reader import TokenStore
from maskwright.shards.writer import write_array
from tests.shards.helpers import SHARDS, VOCAB_SIZE, write_prepared, write_shard

TRAIN = [document for shard in SHARDS["train"] for document in shard]


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, 70_000])
def test_documents_come_back(vocab_size: int, tmp_path: Path) -> None:
    write_prepared(tmp_path, vocab_size)
    store = TokenStore.open(tmp_path, "train")
    assert (store.num_documents, store.num_tokens) == (4, 15)
    assert (store.vocab_size, store.tokenizer_fingerprint) == (vocab_size, "t" * 64)
    assert store.document_lengths.dtype == np.int64
    assert store.document_lengths.tolist() == [3, 1, 9, 2]
    start = 0
    for ids, starts in TRAIN:
        stop = start + len(ids)
        assert store.tokens(start, stop).tolist() == ids
        word_starts = store.word_starts(start, stop)
        assert word_starts.dtype == np.bool_
        assert word_starts.tolist() == [bool(bit) for bit in starts]
        start = stop


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_part_of_a_document(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "manifest.json").exists():
        write_prepared(tmp_path)
    store = TokenStore.open(tmp_path, "train", verify="sizes")
    number = data.draw(st.integers(0, 3))
    begin = int(store.document_lengths[:number].sum())
    ids, starts = TRAIN[number]
    low = data.draw(st.integers(0, len(ids)))
    high = data.draw(st.integers(low, len(ids)))
    assert store.tokens(begin + low, begin + high).tolist() == ids[low:high]
    assert (
        store.word_starts(begin + low, begin + high).tolist() == list(map(bool, starts))[low:high]
    )


def test_unigram_counts_are_those_of_the_train_split(tmp_path: Path) -> None:
    write_prepared(tmp_path)
    for split in ("train", "valid"):
        counts = TokenStore.open(tmp_path, split).unigram_counts
        assert counts.dtype == np.int64
        assert counts.shape == (VOCAB_SIZE,)
        assert {int(i): int(counts[i]) for i in np.flatnonzero(counts)} == {
            **{7: 1, 300: 1, 9: 1, 8: 1},
            **{5: 9, 6: 1, 399: 1},
        }


def test_ranges_outside(tmp_path: Path) -> None:
    write_prepared(tmp_path)
    store = TokenStore.open(tmp_path, "train")
    for start, stop in ((-1, 1), (14, 16), (3, 2), (3, 5)):  # the last crosses two shards
        with pytest.raises(IndexError):
            store.tokens(start, stop)
    assert store.tokens(15, 15).tolist() == []


def test_an_empty_split(tmp_path: Path) -> None:
    write_prepared(tmp_path)
    file = tmp_path / "manifest.json"
    values = json.loads(file.read_text())
    values["splits"]["valid"].update(num_tokens=0, num_documents=0, shards=[])
    file.write_text(json.dumps(values))
    store = TokenStore.open(tmp_path, "valid")
    assert store.num_documents == 0
    assert store.document_lengths.tolist() == []


FILES = [
    "unigram.counts",
    *(f"train/0000{n}.{kind}" for n in (0, 1) for kind in ("tokens", "ends", "starts")),
]


@pytest.mark.parametrize("name", FILES)
def test_damage_is_found_and_named(name: str, tmp_path: Path) -> None:
    write_prepared(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()

    def check(message: str) -> None:
        with pytest.raises(ShardError, match=message) as error:
            TokenStore.open(tmp_path, "train")
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)

    for place in range(0, len(content), max(1, len(content) // 10)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        check("sha256")
    path.write_bytes(content[:-1])
    check(f"has {len(content) - 1} bytes, not {len(content)}")
    path.write_bytes(content + b"\0")
    check(f"has {len(content) + 1} bytes")
    path.unlink()
    check("cannot be read")
    path.write_bytes(content)
    TokenStore.open(tmp_path, "train")


def test_sizes_alone_are_checked_on_demand(tmp_path: Path) -> None:
    write_prepared(tmp_path)
    path = tmp_path / "train" / "00000.tokens"
    path.write_bytes(bytes(len(path.read_bytes())))
    assert TokenStore.open(tmp_path, "train", verify="sizes").tokens(0, 3).tolist() == [0, 0, 0]
    path.write_bytes(b"")
    with pytest.raises(ShardError, match="has 0 bytes"):
        TokenStore.open(tmp_path, "train", verify="sizes")


def test_a_split_that_is_none(tmp_path: Path) -> None:
    write_prepared(tmp_path)
    with pytest.raises(ShardError, match="no split test"):
        TokenStore.open(tmp_path, "test")


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc here")
def test_a_corpus_of_many_shards_needs_few_open_files(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    shards = [write_shard(folder, f"{n:05d}", [([5, 6, 7], [1, 0, 1])]) for n in range(200)]
    counts = write_array(tmp_path / COUNTS_NAME, np.zeros(VOCAB_SIZE, "<u8"))
    empty = SplitInfo(0, 0, 0, 0, 0, ())
    train = SplitInfo(3 * len(shards), len(shards), 0, 0, 0, tuple(shards))
    splits = {"train": train, "valid": empty}
    write_manifest(tmp_path, Manifest(VOCAB_SIZE, "uint16", "t", "f", {}, splits, counts, {}))
    before = count_open_files()
    store = TokenStore.open(tmp_path, "train")
    for start in (*range(0, store.num_tokens, 3), 0):
        assert store.tokens(start, start + 3).tolist() == [5, 6, 7]
        assert store.word_starts(start, start + 3).tolist() == [True, False, True]
        assert count_open_files() <= before + 128
    del store
    assert count_open_files() == before


@pytest.mark.parametrize("kind", ["tokens", "starts"])
def test_a_file_cut_short_while_it_is_used(tmp_path: Path, kind: str) -> None:
    write_prepared(tmp_path)
    store = TokenStore.open(tmp_path, "train")
    path = tmp_path / "train" / f"00001.{kind}"
    path.write_bytes(b"\1")
    with pytest.raises(ShardError, match=rf"{kind} ends before byte \d+: it is truncated"):
        (store.tokens if kind == "tokens" else store.word_starts)(4, 13)


def test_a_file_that_goes_away_before_it_is_used(tmp_path: Path) -> None:
    write_prepared(tmp_path)
    store = TokenStore.open(tmp_path, "train")
    (tmp_path / "train" / "00000.tokens").unlink()
    with pytest.raises(ShardError, match=r"00000\.tokens cannot be read: No such file"):
        store.tokens(0, 3)


def test_ids_that_no_vocabulary_has_are_found_when_they_are_read(tmp_path: Path) -> None:
    """Somebody changed the file after its hash was compared."""
    write_prepared(tmp_path)
    store = TokenStore.open(tmp_path, "train")
    path = tmp_path / "train" / "00001.tokens"
    with path.open("r+b") as file:
        file.seek(2 * 3)
        file.write(np.array([VOCAB_SIZE], "<u2").tobytes())
    assert store.tokens(4, 7).tolist() == [5, 5, 5]
    with pytest.raises(ShardError, match=rf"{path} is damaged: .* id {VOCAB_SIZE}\b"):
        store.tokens(4, 8)
