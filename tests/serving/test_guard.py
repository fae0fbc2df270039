"""Connections, with a transport that says how much of an answer is unread, and the middleware."""

import asyncio
import json
import logging
import resource
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from maskwright.serving.config import ServeConfig
from maskwright.serving.guard import (
    AllowedHosts,
    Connection,
    Guard,
    allow_connections,
    is_loopback,
)

SECONDS = 0.25
LIMITS = ServeConfig(header_seconds=SECONDS, read_seconds=SECONDS)
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
REQUEST = LAST.replace(b"close", b"keep-alive")
LOCAL = ("localhost", "LOCALHOST:8000", "localhost.", "a.localhost:80", "127.0.0.1:8000")
LOCAL += ("127.5.5.5", "[::1]:8000", "[::1]")
FOREIGN = ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example")
FOREIGN += ("notlocalhost", "evil.example:80@localhost", ":8000", "[evil.example]:8000")
FOREIGN += ("[::1]evil", "[::1]evil.example:80", "[::1]:80.evil.example", "[::1", "::1]:80", "[]")
FOREIGN += ("localhost:evil", "localhost:80:80", "localhost:80@evil.example", "[localhost]")
FOREIGN += ("[127.0.0.1]", "evil.example/.localhost", "evil.example#.localhost", "localhost ")


class VirtualSelector(selectors.DefaultSelector):
    """Never waits for a time to pass, but moves its clock there when nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(None if timeout is None else 0)
        if not events:
            self.now += timeout or 0.0
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which timers are exact and take no time."""

    def __init__(self) -> None:
        self.selector = VirtualSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


class Transport(asyncio.Transport):
    """Remembers whether it was closed or aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.unread, self.closed, self.aborted = 0, False, False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.unread, self.aborted = 0, True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Clients:
    """Makes connections of an application that answers when it is told to, `limit` at most."""

    def __init__(self, limit: int) -> None:
        self.limit, self.idle = limit, dict[Connection, None]()
        self.made: list[Connection] = []
        self.begun: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.state = ServerState()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            go = asyncio.Event()
            self.begun.put_nowait(go)
            await go.wait()
            await PlainTextResponse("done")(scope, receive, send)

        self.config = uvicorn.Config(answer, lifespan="off")
        self.config.load()

    def make(self) -> Connection:
        settings = {"config": self.config, "server_state": self.state}
        return Connection(LIMITS, self.limit, self.idle, {}, **settings)

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = self.make(), Transport()
        connection.connection_made(transport)
        self.made.append(connection)
        return connection, transport

    async def ask(self, request: bytes = REQUEST) -> tuple[Connection, Transport, asyncio.Event]:
        """Return a connection with a request, which is answered when the event is set."""
        connection, transport = self.connect()
        connection.data_received(request)
        return connection, transport, await self.begun.get()


def run(work: Callable[[Clients], Coroutine[Any, Any, Any]], limit: int = 3) -> Any:
    async def main() -> Any:
        clients = Clients(limit)
        try:
            return await asyncio.wait_for(work(clients), 20)
        finally:
            for connection in clients.made:
                connection.connection_lost(None)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_a_request_that_is_answered_is_not() -> None:
    async def ask(clients: Clients) -> bool:
        _, transport, _ = await clients.ask()
        await asyncio.sleep(3 * SECONDS)
        return transport.aborted

    assert not run(ask)


@pytest.mark.parametrize("request_", [None, REQUEST, LAST])
def test_who_reads_slowly_is_not_cut_and_who_stops_is(request_: bytes | None) -> None:
    """An answer that is complete may be unread: it is in the buffer."""

    async def read(clients: Clients) -> bool:
        connection, transport, go = await clients.ask(request_ or REQUEST)
        transport.unread = 1000
        connection.pause_writing()
        if request_:  # it is answered to its end
            connection.resume_writing()
            go.set()
            await asyncio.sleep(0)
        for _ in range(8):
            await asyncio.sleep(0.3 * SECONDS)
            transport.unread -= 100
        assert not transport.aborted
        await asyncio.sleep(3 * SECONDS)
        return transport.aborted

    assert run(read)


def test_one_more_takes_the_place_of_the_longest_idle() -> None:
    async def connect(clients: Clients) -> list[bool]:
        transports = [(await clients.ask())[1]]
        transports += [clients.connect()[1] for _ in range(4)]
        assert len(clients.state.connections) == 3
        return [transport.aborted for transport in transports]

    assert run(connect) == [False, True, True, False, False]


def test_one_that_was_asked_on_is_idle_from_then_on() -> None:
    async def connect(clients: Clients) -> list[bool]:
        first, transport, go = await clients.ask()
        others = [clients.connect()[1] for _ in range(2)]
        go.set()
        while first not in clients.idle:
            await asyncio.sleep(0)
        clients.connect()
        return [transport.aborted, *(other.aborted for other in others)]

    assert run(connect) == [False, True, False]


def test_where_all_are_being_answered_one_more_is_closed_and_room_comes_back() -> None:
    async def connect(clients: Clients) -> tuple[bool, bool]:
        first, _, _ = await clients.ask()
        for _ in range(2):
            await clients.ask()
        refused, transport = clients.connect()
        refused.connection_lost(None)
        first.connection_lost(None)
        return transport.aborted, clients.connect()[1].aborted

    assert run(connect) == (True, False)


@pytest.mark.parametrize(
    ("limits", "allowed", "raised"),
    [
        ((1024, 524_288), 4096, 4544),
        ((1024, resource.RLIM_INFINITY), 4096, 4544),
        ((1024, 1024), 576, 1024),
        ((100_000, 100_000), 4096, None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 4096, None),
    ],
)
def test_the_limit_of_files_is_raised_as_far_as_it_goes(
    limits: tuple[int, int], allowed: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: chosen.append(new))
    assert allow_connections(4096) == allowed
    assert chosen == ([] if raised is None else [(raised, limits[1])])


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "my.host"])
def test_names_of_this_machine_are_taken_and_others_are_not(listening: str) -> None:
    hosts = AllowedHosts(listening)
    assert [host for host in (*LOCAL, *FOREIGN) if hosts.allow(host)] == [*LOCAL]


def test_what_is_listened_on_and_what_is_named_is_taken() -> None:
    hosts = AllowedHosts("192.0.2.7", ["model.example", "OTHER.example"])
    assert all(map(hosts.allow, ["192.0.2.7:80", "Model.example:8000", "other.example"]))
    assert not hosts.allow("192.0.2.8")
    assert not hosts.allow("a.model.example")


def test_addresses_are_taken_where_any_is_listened_on() -> None:
    assert AllowedHosts("0.0.0.0").allow("10.1.2.3:8000")
    assert AllowedHosts("::").allow("[2001:db8::1]:8000")
    assert not AllowedHosts("127.0.0.1").allow("10.1.2.3:8000")
    assert not any(map(AllowedHosts("::").allow, FOREIGN[3:]))


def test_only_loopback_is_for_this_machine_alone() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "192.0.2.7", "my.host"]))


def guard(app: Any, config: ServeConfig | None = None) -> Any:
    """A guard around an application of a test's own."""
    config = config or ServeConfig()
    policy, hosts = "default-src 'none'", AllowedHosts(config.host)
    return Guard(app, config, policy, None, lambda *figures: None, hosts)


@pytest.mark.parametrize("is_begun", [False, True])
def test_whatever_fails_is_answered_and_logged_once(
    is_begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        if is_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a bug")

    guarded: Any = guard(fail)
    with caplog.at_level(logging.INFO, "maskwright"):
        answer = TestClient(guarded, base_url="http://localhost").get("/x")
    assert answer.status_code == (200 if is_begun else 500)
    assert is_begun or "error" in answer.json()
    assert [record.name for record in caplog.records] == ["maskwright.serving", "maskwright.access"]
    assert caplog.records[0].message == "GET '/x' failed"


def test_too_many_requests_are_refused_in_the_same_form(caplog: pytest.LogCaptureFixture) -> None:
    begun, go = threading.Event(), threading.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.to_thread(go.wait, 10)
        await PlainTextResponse("done")(scope, receive, send)

    config = ServeConfig(max_requests=1)
    guarded: Any = guard(wait, config)
    client = TestClient(guarded, base_url="http://localhost")
    with caplog.at_level(logging.INFO, "maskwright"), ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.get, "/first")
        assert begun.wait(10)
        refused = client.get("/second")
        go.set()
        assert first.result().text == "done"
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json() == {"error": "too many requests at once; try again later"}
    assert "content-security-policy" in refused.headers
    assert [json.loads(line)["status"] for line in caplog.messages] == [503, 200]
    assert client.get("/third").text == "done"  # there is room again


def test_more_text_than_there_is_memory_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.to_thread(go.wait, 10)
        await PlainTextResponse("done")(scope, receive, send)

    monkeypatch.setattr("maskwright.serving.guard._MAX_OPEN_BYTES", 100)
    guarded: Any = guard(wait)
    client = TestClient(guarded, base_url="http://localhost")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/", content=b"x" * 60)
        assert begun.wait(10)
        refused = client.post("/", content=b"x" * 60)
        go.set()
        assert first.result().text == "done"
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert client.post("/", content=b"x" * 60).text == "done"  # there is room again
