"""What is fetched stays within the limit, and what is used stays there."""

import errno
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import numpy as np
import pytest

from maskwright.errors import ConfigError, ShardError
from maskwright.shards import remote
from maskwright.shards.manifest import read_manifest
from maskwright.shards.reader import TokenStore
from maskwright.shards.remote import cache_folder
from tests.shards.faults import begin_empty, break_memory, start_anew, upload
from tests.shards.helpers import write_prepared


@pytest.fixture
def caching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and data at ``memory://a``, ``memory://b`` and ``memory://c``."""
    local = begin_empty(tmp_path, monkeypatch)
    for name in "abc":
        upload(local, f"memory://{name}")
    return tmp_path / "cache"


def use(name: str, time: float) -> Path:
    """Reads all of ``memory://NAME`` as if it were `time` now, and closes it."""
    store = TokenStore.open(f"memory://{name}", "train")
    for position in (0, 4):
        store.tokens(position, position + 1)
        store.word_starts(position, position + 1)
    folder = store.folder
    del store
    start_anew()
    os.utime(folder / ".origin", (time, time))
    return folder


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_longest_unused_goes_first(
    caching: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = use("a", 2e9), use("b", 1e9)
    monkeypatch.setenv("MASKWRIGHT_CACHE_GB", str(2.5 * size_of(a) / 1e9))
    c = use("c", 3e9)
    assert (a.exists(), b.exists(), c.exists()) == (True, False, True)
    assert "".join(capsys.readouterr().err.splitlines()).startswith(f"removing {b} (0.000 GB) to")
    b = use("b", 4e9)
    assert (a.exists(), b.exists(), c.exists()) == (False, True, True)
    assert size_of(caching) <= 2.5 * size_of(b)


def test_what_is_used_is_not_removed(caching: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TokenStore.open("memory://a", "train")
    store.tokens(4, 13)
    monkeypatch.setenv("MASKWRIGHT_CACHE_GB", str(1.2 * size_of(store.folder) / 1e9))
    with pytest.raises(ShardError) as caught:
        TokenStore.open("memory://b", "train")
    assert str(caught.value).startswith("memory://b needs 0.000 GB more in")
    assert "MASKWRIGHT_CACHE_GB" in str(caught.value)
    assert store.tokens(4, 13).tolist() == [5] * 9
    folder = store.folder
    del store
    start_anew()
    TokenStore.open("memory://b", "train")
    assert not folder.exists()


def test_nothing_is_removed_for_what_does_not_fit_anyway(
    caching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = use("a", 1e9)
    monkeypatch.setenv("MASKWRIGHT_CACHE_GB", "0.000001")
    with pytest.raises(ShardError, match=r"whose limit is 0\.000 GB, of which"):
        TokenStore.open("memory://b", "train")
    assert a.exists()


def test_all_of_a_split_must_fit_before_the_first_file_comes(
    caching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = break_memory(monkeypatch)
    store = TokenStore.open("memory://a", "train")
    present = size_of(store.folder)
    shards = read_manifest(store.folder).splits["train"].shards
    needed = sum(shard.files[kind].num_bytes for shard in shards for kind in ("tokens", "starts"))
    monkeypatch.setenv("MASKWRIGHT_CACHE_GB", str((present + needed - 1) / 1e9))
    start_anew()
    asked = plan.asked.total()
    with pytest.raises(ShardError, match="Training reads shards in random order"):
        TokenStore.open("memory://a", "train").fetch_ahead([])
    assert plan.asked.total() == asked + 1  # the manifest


def test_without_a_limit_half_of_the_space_that_is_free(
    caching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = use("a", 1e9)

    class Disk:
        free = size_of(a) // 3

    monkeypatch.setattr("maskwright.shards.remote.shutil.disk_usage", lambda path: Disk)
    with pytest.raises(ShardError, match=r"memory://b needs"):
        TokenStore.open("memory://b", "train")
    Disk.free = 4 * size_of(a)
    TokenStore.open("memory://b", "train")
    assert a.exists()


@pytest.mark.parametrize("given", ["much", "0", "-1", "nan", "inf"])
def test_limits_that_are_none(given: str, caching: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"MASKWRIGHT_CACHE_GB = {given} must be a number above"):
        TokenStore.open("memory://a", "train")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASKWRIGHT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/maskwright")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_folder() == Path("/var/cache/maskwright")
    monkeypatch.setenv("MASKWRIGHT_CACHE", "~/mine")
    assert cache_folder() == Path("/home/me/mine")


def test_a_file_system_that_cannot_lock(caching: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(remote.fcntl, "flock", refuse)
    with pytest.raises(ShardError, match=r"cannot be locked \(No locks.*MASKWRIGHT_CACHE"):
        TokenStore.open("memory://a", "train")


def test_a_full_disk_is_no_reason_to_try_again(
    caching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = TokenStore.open("memory://a", "train")
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "get_file", fill_up)
    with pytest.raises(ShardError, match=r"^memory://a/.*tokens cannot .*No space.*_CACHE"):
        store.tokens(0, 3)


@pytest.fixture
def served(tmp_path: Path) -> Generator[tuple[str, Counter[str]]]:
    """The URL of a prepared folder over HTTP, and how often each file was asked for."""
    write_prepared(tmp_path / "local")
    asked = Counter[str]()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = partial(Handler, directory=str(tmp_path / "local"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


# A process that ends while it downloads in the background leaves a file to the other process, which
# asks for it again. So each one waits for these threads; the thread of fsspec never ends.
_READ = """
import sys
import threading
import numpy as np
from maskwright.shards.reader import TokenStore
store = TokenStore.open(sys.argv[1], "train")
store.fetch_ahead([np.array([4, 0])])
print(store.tokens(0, 3).tolist(), store.word_starts(4, 13).tolist(), store.tokens(13, 15).tolist())
for thread in threading.enumerate():
    if thread.name.endswith(("(work)", "(conclude)")):
        thread.join()
"""


def test_two_processes_share_what_either_fetches(
    tmp_path: Path, served: tuple[str, Counter[str]]
) -> None:
    url, asked = served
    command = [sys.executable, "-W", "error", "-c", _READ, url]
    environment = {**os.environ, "MASKWRIGHT_CACHE": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(2)
    ]
    answers = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    here = TokenStore.open(tmp_path / "local", "train")
    expected = (here.tokens(0, 3), here.word_starts(4, 13), here.tokens(13, 15))
    assert answers == {" ".join(str(np.asarray(part).tolist()) for part in expected) + "\n"}
    assert asked.pop("/manifest.json") == 2
    assert set(asked.values()) == {1}
    assert len(list((tmp_path / "cache").glob("*/.origin"))) == 1
