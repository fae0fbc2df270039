"""Prepared data elsewhere is read as if it lay here, whatever happens on the way."""

import hashlib
import json
import pickle
import re
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.registry import _registry

from maskwright.errors import ShardError
from maskwright.shards import remote
from maskwright.shards.reader import TokenStore
from maskwright.shards.remote import Mirror, open_folder, open_mirror, show_path
from tests.shards.faults import (
    FAULTS,
    Fault,
    Plan,
    begin_empty,
    break_memory,
    start_anew,
    upload,
    wait_until_said,
)
from tests.shards.helpers import VOCAB_SIZE, write_prepared

URL = "memory://bucket/mine"
FIRST = ["manifest.json", "unigram.counts", "train/00000.ends", "train/00001.ends"]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared folder, also at `URL`; the cache is empty."""
    folder = begin_empty(tmp_path, monkeypatch)
    upload(folder, URL)
    return folder


@pytest.fixture
def plan(local: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    return break_memory(monkeypatch)


def read_all(store: TokenStore) -> list[list[int]]:
    ends = np.cumsum(store.document_lengths)
    spans = list(zip((ends - store.document_lengths).tolist(), ends.tolist(), strict=True))
    tokens = [store.tokens(start, stop).tolist() for start, stop in spans]
    return [*tokens, *(store.word_starts(start, stop).tolist() for start, stop in spans)]


def names_of(plan: Plan) -> dict[str, int]:
    return {path.partition("mine/")[2]: count for path, count in plan.asked.items()}


@pytest.mark.parametrize("split", ["train", "valid"])
def test_the_same_is_read_as_here(split: str, local: Path) -> None:
    here, there = TokenStore.open(local, split), TokenStore.open(URL, split)
    assert (here.is_remote, there.is_remote) == (False, True)
    assert read_all(here) == read_all(there)
    assert here.unigram_counts.tolist() == there.unigram_counts.tolist()


def test_each_file_comes_once_and_only_when_it_is_needed(plan: Plan) -> None:
    store = TokenStore.open(URL, "train")
    assert names_of(plan) == dict.fromkeys(FIRST, 1)
    store.tokens(0, 3)
    assert names_of(plan) == dict.fromkeys([*FIRST, "train/00000.tokens"], 1)
    read_all(store)
    read_all(TokenStore.open(URL, "train", "sizes"))
    start_anew()  # another process reads the manifest, and nothing else
    read_all(TokenStore.open(URL, "train"))
    asked = names_of(plan)
    assert asked.pop("manifest.json") == 2
    assert set(asked.values()) == {1}
    assert not [name for name in asked if name.startswith("valid")]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "name", ["manifest.json", "unigram.counts", "train/00001.ends", "00000.tokens", "00001.starts"]
)
def test_what_goes_wrong_is_tried_again(
    fault: Fault, name: str, plan: Plan, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.add(name, fault, 2)
    assert read_all(TokenStore.open(URL, "train")) == read_all(TokenStore.open(local, "train"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(name in line and "of 5; retrying" in line for line in lines)


def test_a_file_that_is_always_wrong(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan.add("00001.tokens", "corrupt", 5)
    store = TokenStore.open(URL, "train")
    with pytest.raises(ShardError) as caught:
        store.tokens(4, 13)
    start = f"{URL}/train/00001.tokens could not be downloaded in 5 attempts. "
    assert str(caught.value).startswith(start)
    assert "it is damaged: its sha256 is not the manifest's" in str(caught.value)
    assert len(capsys.readouterr().err.splitlines()) == 4
    left = [path.name for path in store.folder.rglob("*00001.tokens*")]
    assert left == [".00001.tokens.part"]
    assert store.tokens(4, 13).tolist() == [5] * 9  # it is right again


def test_a_manifest_that_is_none_names_the_url(local: Path) -> None:
    values = json.loads((local / "manifest.json").read_text())
    fsspec.filesystem("memory").pipe_file(
        "/bucket/mine/manifest.json", json.dumps({**values, "vocab_size": -1}).encode()
    )
    with pytest.raises(ShardError, match=rf"^{URL}/manifest.json is damaged: vocab_size = -1"):
        TokenStore.open(URL, "train")


def test_ids_outside_the_vocabulary_do_not_come_in(tmp_path: Path, plan: Plan) -> None:
    manifest = tmp_path / "local" / "manifest.json"
    values = json.loads(manifest.read_text())
    values["vocab_size"] = 399
    values["unigram_counts"]["num_bytes"] -= 8
    fsspec.filesystem("memory").pipe_file("/bucket/mine/manifest.json", json.dumps(values).encode())
    mirror = open_mirror(URL)
    with pytest.raises(ShardError, match=r"The last error: .*contains the id 399, but vocab_size"):
        mirror.place("train/00001.tokens")


@pytest.mark.parametrize("content", [b"\0" * 6, b"", b"longer than it was"])
def test_what_was_damaged_in_the_cache_comes_again(
    content: bytes, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    store = TokenStore.open(URL, "train")
    expected = read_all(store)
    for name in ("00000.tokens", "00001.ends"):
        (store.folder / "train" / name).write_bytes(content)
    start_anew()
    assert read_all(TokenStore.open(URL, "train")) == expected
    lines = capsys.readouterr().err.splitlines()
    names = (f"the local copy of {URL}/train/{name}" for name in ("00000.tokens", "00001.ends"))
    assert all(line.startswith(name) for line, name in zip(lines, names, strict=True))


def test_ends_that_are_none_name_the_url(local: Path) -> None:
    values = json.loads((local / "manifest.json").read_text())
    content = np.array([4, 3], "<u8").tobytes()
    ends = values["splits"]["train"]["shards"][0]["files"]["ends"]
    ends |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    for name, written in (
        ("train/00000.ends", content),
        ("manifest.json", json.dumps(values).encode()),
    ):
        fsspec.filesystem("memory").pipe_file(f"/bucket/mine/{name}", written)
    with pytest.raises(ShardError, match=rf"^{URL}/train/00000\.ends "):
        TokenStore.open(URL, "train")


def test_a_copy_cut_short_under_its_reader_names_the_url(plan: Plan) -> None:
    TokenStore.open(URL, "train").tokens(0, 3)
    start_anew()
    store = TokenStore.open(URL, "train")
    (store.folder / "train" / "00000.tokens").write_bytes(b"")
    with pytest.raises(ShardError, match=rf"^the local copy of {URL}/train/00000\.tokens ends "):
        store.tokens(0, 3)


def test_a_cache_behind_a_link(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "scratch")
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "link"))
    mirror = open_folder(URL)
    again = open_folder(mirror.path.resolve())  # as the provenance of a run has it
    assert again is mirror
    assert show_path(mirror.path.resolve()) == URL
    assert TokenStore.open(mirror.path.resolve(), "train").tokens(4, 13).tolist() == [5] * 9


def test_what_paths_are_called(local: Path) -> None:
    folder = TokenStore.open(URL, "train").folder
    assert show_path(folder) == URL
    assert show_path(folder / "tokenizer") == f"{URL}/tokenizer"
    assert show_path(local) == str(local)


def test_other_data_at_the_url_is_another_mirror(local: Path) -> None:
    before = TokenStore.open(URL, "train")
    start_anew()
    write_prepared(local, VOCAB_SIZE + 1)
    upload(local, URL)
    after = TokenStore.open(URL, "train")
    assert after.vocab_size == before.vocab_size + 1
    assert after.folder != before.folder
    assert read_all(before) == read_all(after)


def test_a_pickled_store_goes_on_fetching(plan: Plan) -> None:
    pickled = pickle.dumps(TokenStore.open(URL, "train"))
    start_anew()
    store = pickle.loads(pickled)
    assert store.is_remote
    assert store.tokens(4, 13).tolist() == [5] * 9
    assert plan.asked["/bucket/mine/manifest.json"] == 1


def test_a_folder_outside_the_cache_is_no_mirror(plan: Plan, local: Path) -> None:
    """Whatever it says of itself, as it may be from anywhere."""
    (local / ".origin").write_text(URL)
    (local / "train" / "00000.tokens").unlink()
    assert not isinstance(open_folder(local), Mirror)
    with pytest.raises(ShardError, match=r"00000\.tokens cannot be read: No such file"):
        TokenStore.open(local, "train")
    assert not plan.asked


def test_all_is_fetched_ahead_in_the_order_of_need(
    plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskwright.shards.reader.AT_ONCE", 1)
    store = TokenStore.open(URL, "train")
    store.fetch_ahead([np.array([14, 5])])
    said = wait_until_said(capsys, " retries")
    kinds = ("tokens", "starts")
    wanted = [f"train/{shard}.{kind}" for shard in ("00001", "00000") for kind in kinds]
    assert [name for name in names_of(plan) if "ends" not in name][-4:] == wanted
    assert re.search(r"\ndownloaded 0\.0 MB of memory://bucket/mine/train in .* 0 retries", said)
    store.fetch_ahead([np.array([14])])
    assert capsys.readouterr().err == ""  # everything is here already
    assert set(plan.asked.values()) == {1}


def test_what_fails_in_the_background_is_told_to_who_reads_it(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.add("00000.tokens", "refuse", 10)
    store = TokenStore.open(URL, "train")
    store.fetch_ahead([])
    wait_until_said(capsys, "1 files could not be downloaded")
    with pytest.raises(ShardError, match=r"00000\.tokens could not be downloaded in 5 attempts"):
        store.tokens(0, 3)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:secret@host/data",
        "HTTP://secret@host",
        "sftp://secret@host/data",
        "abfs://container:secret@account.dfs.core.windows.net/data",
        "https://host/data?sig=secret",
        "https://a@b:secret@host/data",
    ],
)
def test_a_credential_in_a_url_is_refused(url: str) -> None:
    with pytest.raises(ShardError, match=r"://… contains a .*where fsspec looks for") as caught:
        TokenStore.open(url, "train")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["abfs://container@account.dfs.core.windows.net/x", "hf://bert@main/x", "s3://b/a@b?c"]
)
def test_an_at_sign_may_be_part_of_a_name(url: str) -> None:
    remote.check_credentials(url)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for protocol in ("s3", "s3a"):  # another test may have asked for it
        monkeypatch.delitem(_registry, protocol, raising=False)
    with pytest.raises(ShardError, match=r"s3fs.* Run: pip install .*\[remote\]'"):
        TokenStore.open("s3://bucket/data", "train")


def test_a_protocol_that_nobody_knows() -> None:
    with pytest.raises(
        ShardError, match=r"^nosuch://x cannot be reached: .*nosuch\. Check the URL"
    ):
        TokenStore.open("nosuch://x", "train")


@pytest.mark.parametrize("error", [PermissionError, ImportError])
def test_what_is_final_is_not_tried_again(
    error: type[Exception],
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = TokenStore.open(URL, "train")
    asked: list[str] = []

    def refuse(system: object, rpath: str, lpath: str, **named: object) -> None:
        asked.append(rpath)
        raise error("no.")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "get_file", refuse)
    with pytest.raises(
        ShardError, match=rf"^{URL}/train/00000\.tokens cannot be read: .*: no\. \w"
    ):
        store.tokens(0, 3)
    assert len(asked) == 1
    assert capsys.readouterr().err == ""
