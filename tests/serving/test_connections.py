"""Connections, with a transport that says how much of an answer is unread."""

import asyncio
import errno
import logging
import resource
import selectors
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from maskwright.errors import InputError
from maskwright.serving.connections import (
    BACKLOG,
    OTHER_FILES,
    STATE_KEY,
    AcceptErrorHandler,
    Connection,
    Connections,
    allow_connections,
)

SECONDS = 0.25
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"


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
    """Remembers whether it was aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.unread, self.aborted = 0, False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Clients:
    """Makes connections of an application that answers nothing, `limit` at most."""

    def __init__(self, limit: int) -> None:
        self.connections = Connections(limit, SECONDS, SECONDS)
        self.made: list[Connection] = []
        self.begun: asyncio.Queue[Connection] = asyncio.Queue()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            """As the guard does, without an end."""
            connection = scope["state"][STATE_KEY]
            connection.begin_request()
            self.begun.put_nowait(connection)
            await asyncio.Event().wait()

        self.config = uvicorn.Config(answer, lifespan="off")
        self.config.load()

    def connect(self) -> tuple[Connection, Transport]:
        settings = {"config": self.config, "server_state": ServerState(), "app_state": {}}
        connection, transport = self.connections.make(**settings), Transport()
        connection.connection_made(transport)
        self.made.append(connection)
        return connection, transport

    async def ask(self) -> tuple[Connection, Transport]:
        """A connection with a request that is being answered."""
        connection, transport = self.connect()
        connection.data_received(REQUEST)
        assert await self.begun.get() is connection
        return connection, transport


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


def test_a_connection_without_a_request_is_cut() -> None:
    async def wait(clients: Clients) -> bool:
        connection, transport = clients.connect()
        connection.data_received(REQUEST[:10])
        await asyncio.sleep(3 * SECONDS)
        return transport.aborted

    assert run(wait)


def test_a_request_that_is_answered_is_not() -> None:
    async def ask(clients: Clients) -> bool:
        _, transport = await clients.ask()
        await asyncio.sleep(3 * SECONDS)
        return transport.aborted

    assert not run(ask)


@pytest.mark.parametrize("begin", [Connection.pause_writing, Connection.end_request])
def test_who_reads_slowly_is_not_cut_and_who_stops_is(begin: Callable[[Connection], None]) -> None:
    """An answer that is complete may be unread: it is in the buffer."""

    async def read(clients: Clients) -> bool:
        connection, transport = await clients.ask()
        transport.unread = 1000
        begin(connection)
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
        assert len(clients.connections) == 3
        return [transport.aborted for transport in transports]

    assert run(connect) == [False, True, True, False, False]


def test_one_that_was_asked_on_is_idle_from_then_on() -> None:
    async def connect(clients: Clients) -> list[bool]:
        first, transport = await clients.ask()
        others = [clients.connect()[1] for _ in range(2)]
        first.end_request()
        clients.connect()
        return [transport.aborted, *(other.aborted for other in others)]

    assert run(connect) == [False, True, False]


def test_where_all_are_being_answered_one_more_is_closed_and_room_comes_back() -> None:
    async def connect(clients: Clients) -> tuple[bool, bool]:
        first, _ = await clients.ask()
        for _ in range(2):
            await clients.ask()
        refused, transport = clients.connect()
        refused.data_received(REQUEST)  # which comes before the transport is closed
        refused.connection_lost(None)
        first.connection_lost(None)
        return transport.aborted, clients.connect()[1].aborted

    assert run(connect) == (True, False)


def test_a_burst_of_connections_leaves_files() -> None:
    """The queue is full again before every round of the loop."""
    accepted, lost, peak, wanted = 0, 0, 0, 8 * BACKLOG

    class Busy(socket.socket):
        def accept(self) -> Any:
            nonlocal accepted, peak
            found = super().accept()
            accepted += 1
            peak = max(peak, accepted - lost)
            if accepted <= wanted - BACKLOG:
                socket.create_connection(self.getsockname(), 60).close()
            return found

    async def flood(clients: Clients) -> int:
        def make() -> Connection:
            settings = {"config": clients.config, "server_state": ServerState(), "app_state": {}}
            connection = clients.connections.make(**settings)
            end = connection.connection_lost

            def lose(exc: Exception | None) -> None:
                nonlocal lost
                lost += 1
                end(exc)

            connection.connection_lost = lose
            return connection

        with Busy() as listening:
            listening.bind(("127.0.0.1", 0))
            loop = asyncio.get_running_loop()
            server = await loop.create_server(make, sock=listening, backlog=BACKLOG)
            for _ in range(BACKLOG):
                socket.create_connection(listening.getsockname(), 60).close()
            while lost < wanted:
                await asyncio.sleep(0)
            server.close()
        return peak

    limit = 16
    assert limit + 2 * BACKLOG < run(flood, limit) <= limit + OTHER_FILES - 64


def test_a_lack_of_files_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    class Scarce(socket.socket):
        attempts = 0

        def accept(self) -> Any:
            Scarce.attempts += 1
            raise OSError(errno.EMFILE, "Too many open files")

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(AcceptErrorHandler())
        with Scarce() as listening, socket.socket() as client:
            listening.bind(("127.0.0.1", 0))
            client.setblocking(False)
            server = await loop.create_server(asyncio.Protocol, sock=listening, backlog=20)
            await loop.sock_connect(client, listening.getsockname())
            while not Scarce.attempts:
                await asyncio.sleep(0.01)
            server.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(serve())
    assert Scarce.attempts > 1
    [line] = caplog.messages
    assert "Too many open files" in line
    assert "--max_connections" in line


def test_other_failures_of_the_loop_are_still_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(AcceptErrorHandler())
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(fail())
    assert "ZeroDivisionError" in caplog.text


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


def test_too_few_files_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100, 100))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: None)
    with pytest.raises(InputError, match="ulimit -n = 100"):
        allow_connections(4096)
