"""When a connection is cut, with a transport that says how much of an answer is unread."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from maskwright.serving.protocol import ImpatientProtocol

SECONDS = 0.25
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"


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


def run(work: Callable[[ImpatientProtocol, Transport], Coroutine[Any, Any, None]]) -> bool:
    """Whether the connection was cut."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(60)

    async def main() -> bool:
        config = uvicorn.Config(app, lifespan="off")
        config.load()
        times = {"header_seconds": SECONDS, "read_seconds": SECONDS}
        protocol = ImpatientProtocol(config, ServerState(), {}, **times)
        transport = Transport()
        protocol.connection_made(transport)
        await work(protocol, transport)
        was_cut = transport.aborted
        protocol.connection_lost(None)
        return was_cut

    return asyncio.run(main())


async def read_slowly(
    protocol: ImpatientProtocol, transport: Transport, begin: Callable[[], None]
) -> None:
    """Reads an answer, from `begin` on, longer in all than a connection may stand still."""
    protocol.data_received(REQUEST)
    transport.unread = 1000
    begin()
    for _ in range(8):
        await asyncio.sleep(0.3 * SECONDS)
        transport.unread -= 100
    assert not transport.aborted


def test_a_connection_without_a_request_is_cut() -> None:
    async def wait(protocol: ImpatientProtocol, transport: Transport) -> None:
        protocol.data_received(REQUEST[:10])
        await asyncio.sleep(3 * SECONDS)

    assert run(wait)


def test_a_request_that_is_answered_is_not() -> None:
    async def ask(protocol: ImpatientProtocol, transport: Transport) -> None:
        protocol.data_received(REQUEST)
        await asyncio.sleep(3 * SECONDS)

    assert not run(ask)


def test_who_reads_slowly_is_not_cut_and_who_stops_is() -> None:
    async def read(protocol: ImpatientProtocol, transport: Transport) -> None:
        await read_slowly(protocol, transport, protocol.pause_writing)
        await asyncio.sleep(3 * SECONDS)

    assert run(read)


def test_an_answer_on_its_way_is_read_to_its_end() -> None:
    """uvicorn calls a response complete when it is in the buffer, not when it was read."""

    async def read(protocol: ImpatientProtocol, transport: Transport) -> None:
        await read_slowly(protocol, transport, protocol.on_response_complete)
        transport.unread = 0
        protocol.resume_writing()

    assert not run(read)
