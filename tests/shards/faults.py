"""Transfers that go wrong: of fsspec's file system in memory, and of any server over HTTP."""

import http.client
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal

import fsspec
import pytest

from maskwright.shards import remote
from tests.shards.helpers import write_prepared

Fault = Literal["drop", "truncate", "corrupt", "refuse", "forbid"]
FAULTS: tuple[Fault, ...] = ("drop", "truncate", "corrupt", "refuse")  # that pass
STATUSES: dict[Fault | None, int] = {"refuse": 503, "forbid": 403}
_FORWARDED = ("content-type", "content-range", "accept-ranges", "etag", "last-modified")


class Plan:
    """Which faults the next transfers of a file meet, and how often each file was asked for."""

    def __init__(self) -> None:
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.asked: Counter[str] = Counter()
        self.lock = Lock()

    def add(self, name: str, fault: Fault, times: int = 1) -> None:
        """The next transfers of the file whose path ends with `name` go wrong so."""
        self.faults[name].extend(repeat(fault, times))

    def next_fault(self, path: str) -> Fault | None:
        with self.lock:
            self.asked[path] += 1
            name = next((name for name in self.faults if path.endswith(name)), None)
            return self.faults[name].pop(0) if name and self.faults[name] else None


def change(content: bytes, fault: Fault | None) -> bytes:
    if fault == "truncate":
        return content[: len(content) // 2]
    if fault == "corrupt":
        return content[:-1] + bytes([content[-1] ^ 1])
    if fault == "forbid":
        return b""
    return content


def upload(path: Path, url: str) -> None:
    """All files below `path`, to a folder of fsspec."""
    system, root = fsspec.core.url_to_fs(url)
    for file in sorted(path.rglob("*")):
        if file.is_file():
            system.pipe_file(f"{root}/{file.relative_to(path).as_posix()}", file.read_bytes())


def start_anew() -> None:
    """As in a process of its own: no mirror is open."""
    remote.MIRRORS.clear()
    remote.open_mirror.cache_clear()


def begin_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing in the cache nor at ``memory://``; gives a prepared folder on this machine."""
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    start_anew()
    fsspec.filesystem("memory").store.clear()
    write_prepared(tmp_path / "local")
    return tmp_path / "local"


def break_memory(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Lets ``memory://`` meet faults."""
    plan = Plan()
    kind: Any = fsspec.get_filesystem_class("memory")
    get_file = kind.get_file

    def get_with_fault(system: Any, rpath: str, lpath: str) -> None:
        fault = plan.next_fault(rpath)
        if fault == "refuse":
            raise ConnectionRefusedError("refused")
        get_file(system, rpath, lpath)
        file = Path(lpath)
        if fault == "drop":
            file.write_bytes(file.read_bytes()[:1])
            raise ConnectionResetError("Connection reset by peer")
        file.write_bytes(change(file.read_bytes(), fault))

    monkeypatch.setattr(kind, "get_file", get_with_fault)
    hurry(monkeypatch)
    return plan


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.01)


@contextmanager
def faulty_proxy(port: int, plan: Plan) -> Generator[str]:
    """The URL of a server that passes on what the one at `port` answers, with faults in GETs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            fault = plan.next_fault(path) if self.command == "GET" else None
            connection = http.client.HTTPConnection("127.0.0.1", port)
            length = int(self.headers.get("content-length") or 0)
            headers = {name: value for name, value in self.headers.items() if name != "Host"}
            connection.request(self.command, self.path, self.rfile.read(length), headers)
            answer = connection.getresponse()
            body = change(answer.read(), fault)
            connection.close()
            self.send_response(STATUSES.get(fault, answer.status))
            for name in _FORWARDED:
                if value := answer.getheader(name):
                    self.send_header(name, value)
            size = answer.getheader("content-length") if self.command == "HEAD" else len(body)
            self.send_header("content-length", str(size))
            self.end_headers()
            if fault == "drop":
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(body)

        def __getattr__(self, name: str) -> Any:  # HEAD and PUT are passed on, too
            if name in ("do_HEAD", "do_PUT"):
                return self.do_GET
            raise AttributeError(name)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that has given up is what is tested here

    server = Server(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def wait_until_said(capsys: pytest.CaptureFixture[str], words: str, seconds: float = 20) -> str:
    """What has been said on standard error when `words` are among it."""
    deadline, said = time.monotonic() + seconds, ""
    while words not in said:
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said
