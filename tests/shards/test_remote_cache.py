"""The cache of fetched files: its folder, its locks, a full disk."""

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

from maskwright.errors import ShardError
from maskwright.shards import remote
from maskwright.shards.reader import TokenStore
from maskwright.shards.remote import cache_folder
from tests.shards.faults import begin_empty, upload
from tests.shards.helpers import write_prepared


@pytest.fixture
def caching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and data at ``memory://a``."""
    upload(begin_empty(tmp_path, monkeypatch), "memory://a")
    return tmp_path / "cache"


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
    with pytest.raises(ShardError, match=r"^memory://a/.*No space.*old folders.*_CACHE"):
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
    if thread.name.endswith("(work)"):
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
