"""Several prepared folders read as one."""

from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest

from maskwright.errors import ShardError
from maskwright.shards.manifest import write_manifest
from maskwright.shards.reader import ConcatStore, TokenStore, fingerprint_folders
from tests.shards.faults import break_memory, start_anew, upload, wait_until_said
from tests.shards.helpers import SHARDS, write_prepared


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    for name in ("a", "b"):
        manifest = write_prepared(tmp_path / name)
        write_manifest(tmp_path / name, replace(manifest, fingerprint=name * 64))
    return {name: tmp_path / name for name in ("a", "b")}


def join(folders: dict[str, Path], *passes: float) -> ConcatStore:
    stores = {name: TokenStore.open(path, "train") for name, path in folders.items()}
    return ConcatStore(stores, passes)


def test_documents_follow_one_another(folders: dict[str, Path]) -> None:
    joint = join(folders)
    documents = [document for shard in SHARDS["train"] for document in shard] * 2
    assert joint.document_lengths.tolist() == [len(ids) for ids, _ in documents]
    assert joint.num_tokens == sum(map(len, [ids for ids, _ in documents]))
    assert joint.num_documents_each == (4, 4)
    start = 0
    for number, (ids, starts) in enumerate(documents):
        stop = start + len(ids)
        assert joint.tokens(start, stop).tolist() == ids
        assert joint.word_starts(start, stop).tolist() == [bool(s) for s in starts]
        assert joint.source_of(start) == joint.source_of(stop - 1) == ("a" if number < 4 else "b")
        start = stop
    with pytest.raises(IndexError, match="in more than one document"):
        joint.tokens(joint.num_tokens // 2 - 1, joint.num_tokens // 2 + 1)


def test_token_counts_are_those_that_training_sees(folders: dict[str, Path]) -> None:
    one = TokenStore.open(folders["a"], "train").unigram_counts
    assert (join(folders).unigram_counts == 2 * one).all()
    assert (join(folders, 0.5, 3.0).unigram_counts == np.rint(3.5 * one)).all()


def test_the_manifest_of_all_adds_up(folders: dict[str, Path]) -> None:
    joint = join(folders)
    assert joint.manifest.splits["train"].num_tokens == joint.info.num_tokens == joint.num_tokens
    assert joint.manifest.source["paths"] == ["a.txt", "a.txt"]
    assert joint.manifest.source["sources"]["b"]["fingerprint"] == "b" * 64
    assert joint.manifest.dropped == {"empty": 6}
    assert joint.name == "a + b"


def test_what_lies_elsewhere_is_fetched_in_the_order_of_all(
    folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("maskwright.shards.reader.AT_ONCE", 1)
    start_anew()
    fsspec.filesystem("memory").store.clear()
    for name, folder in folders.items():
        upload(folder, f"memory://bucket/{name}")
    plan = break_memory(monkeypatch)
    places = {"there": "memory://bucket/a", "here": folders["a"], "too": "memory://bucket/b"}
    joint = ConcatStore({name: TokenStore.open(place, "train") for name, place in places.items()})
    assert joint.is_remote
    assert joint.name == "a + a + b"
    assert not join(folders).is_remote
    plan.asked.clear()
    one = joint.num_tokens // 3
    joint.fetch_ahead([np.array([2 * one, one + 1]), np.array([5, one + 6])])
    said = wait_until_said(capsys, " retries")
    shards = ["b/train/00000", "a/train/00001", "a/train/00000", "b/train/00001"]
    wanted = [f"/bucket/{shard}.{kind}" for shard in shards for kind in ("tokens", "starts")]
    assert list(plan.asked) == wanted
    assert said.count("in the background") == 2
    assert "\ndownloaded 0.0 MB of memory://bucket/a/train and 0.0 MB of memory://bucket/b" in said
    for first in (0, one, 2 * one):
        assert joint.tokens(first + 4, first + 13).tolist() == [5] * 9


def test_a_fingerprint_is_of_all_folders_in_their_order(folders: dict[str, Path]) -> None:
    both = fingerprint_folders(folders)
    assert both == join(folders).manifest.fingerprint
    assert fingerprint_folders({"a": folders["a"]}) == "a" * 64
    assert fingerprint_folders(dict(reversed(folders.items()))) != both
    with pytest.raises(ShardError, match="nowhere does not exist"):
        fingerprint_folders({**folders, "c": folders["a"] / "nowhere"})
